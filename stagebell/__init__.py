"""Stagebell: a runtime for message-driven multi-agent systems.

The names below are loaded when they are first used, so that the command line answers without importing all of AutoGen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagebell import errors, testing
    from stagebell.errors import StagebellError
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

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "DeferredReply",
    "LocalRuntime",
    "Publisher",
    "RedisRuntime",
    "Retry",
    "Settings",
    "StagebellError",
    "Timer",
    "Timers",
    "agent_options",
    "deadline",
    "defer_reply",
    "errors",
    "hop_limit",
    "immediate",
    "migrates",
    "remaining",
    "testing",
]

_MODULES = {
    "DeadLetter": "stagebell.runtime.redis.letters",
    "DeadLetters": "stagebell.runtime.redis.dead_letters",
    "DeferredReply": "stagebell.runtime.engine.deferred",
    "LocalRuntime": "stagebell.runtime.local.runtime",
    "Publisher": "stagebell.runtime.redis.publisher",
    "RedisRuntime": "stagebell.runtime.redis.runtime",
    "Retry": "stagebell.runtime.engine.retry",
    "Settings": "stagebell.runtime.ops.settings",
    "StagebellError": "stagebell.errors",
    "Timer": "stagebell.runtime.engine.timers",
    "Timers": "stagebell.runtime.engine.ports",
    "agent_options": "stagebell.runtime.engine.options",
    "defer_reply": "stagebell.runtime.engine.deferred",
    "deadline": "stagebell.runtime.engine.deadlines",
    "hop_limit": "stagebell.runtime.engine.hops",
    "immediate": "stagebell.runtime.engine.immediate",
    "migrates": "stagebell.runtime.engine.migrations",
    "remaining": "stagebell.runtime.engine.deadlines",
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
