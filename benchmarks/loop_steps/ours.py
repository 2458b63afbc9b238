"""The same run by ours: in memory, and with every step durable on a server."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from autogen_core import AgentId, AgentRuntime, FunctionCall
from autogen_core.models import CreateResult, LLMMessage, RequestUsage

from benchmarks.loop_steps.peers import ARGUMENTS, END, Run, add
from benchmarks.servers import Kind, server
from stagebell import LocalRuntime, RedisRuntime
from stagebell.agents.limits import Limits
from stagebell.agents.messages import Task
from stagebell.agents.model_agent import ModelAgent
from stagebell.messages.conversation import RunResult
from stagebell.testing import ScriptedModel
from stagebell.tools.tool import tool

LOCAL = "stagebell, LocalRuntime"
DURABLE: dict[Kind, str] = {
    "redis": "stagebell, every step durable on Redis",
    "valkey": "stagebell, every step durable on Valkey",
}

ADD = tool(add, effects="none")
_USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)


class _Model(ScriptedModel):
    """Answers, and keeps nothing of what it was asked, as the models of the others."""

    def __init__(self, steps: int) -> None:
        super().__init__([])
        self._steps = steps

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        number = sum(message.type == "AssistantMessage" for message in messages)
        if number == self._steps - 1:
            return CreateResult(finish_reason="stop", content=END, usage=_USAGE, cached=False)
        call = FunctionCall(id=f"c{number}", name="add", arguments=ARGUMENTS)
        return CreateResult(finish_reason="function_calls", content=[call], usage=_USAGE, cached=False)


def _agent(steps: int) -> ModelAgent[None, str]:
    return ModelAgent(_Model(steps), tools=[ADD], limits=Limits(max_steps=steps, repeated_calls=None))


def _run(runtime: AgentRuntime) -> Run:
    numbers = itertools.count()

    async def run() -> None:
        result: RunResult = await runtime.send_message(Task(content="go"), AgentId("a", str(next(numbers))))
        assert result.output == END

    return run


@asynccontextmanager
async def local(steps: int) -> AsyncIterator[Run]:
    """In memory."""
    async with LocalRuntime() as runtime:
        await ModelAgent.register(runtime, "a", lambda: _agent(steps))
        yield _run(runtime)


@asynccontextmanager
async def durable(kind: Kind, steps: int) -> AsyncIterator[Run]:
    """With a server: each decision and each result is committed before the next thing is begun."""
    with server(kind) as port:
        async with RedisRuntime(f"redis://127.0.0.1:{port}") as runtime:
            await ModelAgent.register(runtime, "a", lambda: _agent(steps))
            yield _run(runtime)
