"""Stagebell: a runtime for message-driven multi-agent systems.

The names below are loaded when they are first used, so that the command line answers without importing all of AutoGen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagebell import errors, testing
    from stagebell.agents.context import RunContext
    from stagebell.agents.delegates import agent_tool, handoff
    from stagebell.agents.limits import Limits
    from stagebell.agents.messages import Task
    from stagebell.agents.model_agent import ModelAgent
    from stagebell.agents.runs import RunHandle, Runs
    from stagebell.errors import StagebellError
    from stagebell.messages.conversation import RunResult, RunStatus, TerminationReason
    from stagebell.runtime.engine.deadlines import deadline, remaining
    from stagebell.runtime.engine.deferred import DeferredReply, defer_reply
    from stagebell.runtime.engine.hops import hop_limit
    from stagebell.runtime.engine.immediate import immediate
    from stagebell.runtime.engine.migrations import migrates
    from stagebell.runtime.engine.options import agent_options
    from stagebell.runtime.engine.ports import Timers
    from stagebell.runtime.engine.retry import Retry
    from stagebell.runtime.engine.timers import Timer
    from stagebell.runtime.local.runtime import LocalRuntime
    from stagebell.runtime.ops.settings import Settings
    from stagebell.runtime.redis.dead_letters import DeadLetters
    from stagebell.runtime.redis.letters import DeadLetter
    from stagebell.runtime.redis.publisher import Publisher
    from stagebell.runtime.redis.runtime import RedisRuntime
    from stagebell.tools.agent import ToolAgent
    from stagebell.tools.approvals import Approvals
    from stagebell.tools.context import ToolContext
    from stagebell.tools.guardrails import Guardrail
    from stagebell.tools.tool import tool

__all__ = [
    "Approvals",
    "DeadLetter",
    "DeadLetters",
    "DeferredReply",
    "Guardrail",
    "Limits",
    "LocalRuntime",
    "ModelAgent",
    "Publisher",
    "RedisRuntime",
    "Retry",
    "RunContext",
    "RunHandle",
    "RunResult",
    "RunStatus",
    "Runs",
    "Settings",
    "StagebellError",
    "Task",
    "TerminationReason",
    "Timer",
    "Timers",
    "ToolAgent",
    "ToolContext",
    "agent_options",
    "agent_tool",
    "deadline",
    "defer_reply",
    "errors",
    "handoff",
    "hop_limit",
    "immediate",
    "migrates",
    "remaining",
    "testing",
    "tool",
]

_MODULES = {
    "Approvals": "stagebell.tools.approvals",
    "DeadLetter": "stagebell.runtime.redis.letters",
    "DeadLetters": "stagebell.runtime.redis.dead_letters",
    "DeferredReply": "stagebell.runtime.engine.deferred",
    "Guardrail": "stagebell.tools.guardrails",
    "Limits": "stagebell.agents.limits",
    "LocalRuntime": "stagebell.runtime.local.runtime",
    "ModelAgent": "stagebell.agents.model_agent",
    "Publisher": "stagebell.runtime.redis.publisher",
    "RedisRuntime": "stagebell.runtime.redis.runtime",
    "Retry": "stagebell.runtime.engine.retry",
    "RunContext": "stagebell.agents.context",
    "RunHandle": "stagebell.agents.runs",
    "RunResult": "stagebell.messages.conversation",
    "RunStatus": "stagebell.messages.conversation",
    "Runs": "stagebell.agents.runs",
    "Settings": "stagebell.runtime.ops.settings",
    "StagebellError": "stagebell.errors",
    "Task": "stagebell.agents.messages",
    "TerminationReason": "stagebell.messages.conversation",
    "Timer": "stagebell.runtime.engine.timers",
    "Timers": "stagebell.runtime.engine.ports",
    "ToolAgent": "stagebell.tools.agent",
    "ToolContext": "stagebell.tools.context",
    "agent_options": "stagebell.runtime.engine.options",
    "agent_tool": "stagebell.agents.delegates",
    "deadline": "stagebell.runtime.engine.deadlines",
    "defer_reply": "stagebell.runtime.engine.deferred",
    "handoff": "stagebell.agents.delegates",
    "hop_limit": "stagebell.runtime.engine.hops",
    "immediate": "stagebell.runtime.engine.immediate",
    "migrates": "stagebell.runtime.engine.migrations",
    "remaining": "stagebell.runtime.engine.deadlines",
    "tool": "stagebell.tools.tool",
}


def __getattr__(name: str) -> Any:
    if name in ("errors", "testing"):
        return import_module(f"stagebell.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'stagebell' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
