"""Model agents for tests: what the model says is written down, and nothing leaves the process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from autogen_core import AgentId, FunctionCall

from stagebell.agents.messages import Task
from stagebell.agents.model_agent import ModelAgent
from stagebell.agents.runs import RunHandle
from stagebell.messages.conversation import AnyEntry, Returned, RunResult, RunStatus
from stagebell.testing import ScriptedModel
from tests.support.waiting import eventually

_numbers = count(1)


def wants(name: str, /, **arguments: Any) -> FunctionCall:
    """The model calls a tool; each call has an id that no other has."""
    return FunctionCall(id=f"call{next(_numbers)}", name=name, arguments=json.dumps(arguments))


def says(*answers: Any) -> ScriptedModel:
    """A model that gives these answers: text, a call, or a list of calls."""
    return ScriptedModel([[answer] if isinstance(answer, FunctionCall) else answer for answer in answers])


async def host_model(
    runtime: Any, model: ScriptedModel | Callable[[], ScriptedModel], type: str = "assistant", **options: Any
) -> ScriptedModel:
    """Register a model agent; a function makes a model of its own for each conversation."""
    made = model if isinstance(model, ScriptedModel) else None
    await ModelAgent.register(runtime, type, lambda: ModelAgent(made or model(), **options))
    return made or ScriptedModel([])


async def run(runtime: Any, content: str = "do it", key: str = "c", type: str = "assistant", **task: Any) -> RunResult:
    """Give a task to a conversation, and wait for its result."""
    message = Task(content=content, **task)
    result: RunResult = await asyncio.wait_for(runtime.send_message(message, AgentId(type, key)), 20)
    return result


def results(entries: Sequence[AnyEntry]) -> list[Any]:
    """What the calls in these entries have returned: values, and codes of errors."""
    found = [entry.result for entry in entries if isinstance(entry, Returned)]
    return [result.value if not result.is_error else str(result.code) for result in found]


def sent(model: ScriptedModel, request: int = -1) -> str:
    """All that a request told the model, as text."""
    return "\n".join(str(message.content) for message in model.requests[request].messages)


async def reaches(handle: RunHandle[Any], wanted: RunStatus) -> None:
    """Wait until the run stands so."""

    async def is_there() -> bool:
        return await handle.status() is wanted

    await eventually(is_there, within=10)
