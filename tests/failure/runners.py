"""Agents with long tasks: each step leaves a mark outside, which can be counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall
from redis.asyncio import Redis

from stagebell import Limits, ModelAgent, ToolContext, tool
from stagebell.testing import ScriptedModel
from stagebell.tools.declared import Status

STEPS = 8


def marks_of(namespace: str) -> str:
    """The key under which the server keeps how often each mark was made."""
    return f"marks:{namespace}"


class Outside:
    """Something that is told of each step, and knows what it was told."""

    def __init__(self, url: str, namespace: str) -> None:
        self._client: Any = Redis.from_url(url)
        self._key = marks_of(namespace)

    async def mark(self, key: str) -> None:
        await self._client.hincrby(self._key, key, 1)

    async def knows(self, key: str) -> bool:
        return bool(await self._client.hexists(self._key, key))


async def is_marked(context: ToolContext[Outside]) -> Status:
    known = await context.deps.knows(context.idempotency_key)
    return Status("succeeded", "marked") if known else Status("absent")


@tool(effects="side", status=is_marked)
async def mark(context: ToolContext[Outside], step: int) -> str:
    """Leave a mark."""
    await context.deps.mark(context.idempotency_key)
    return "marked"


async def next_mark(messages: Sequence[Any], tools: Sequence[Any]) -> Any:
    """The model: a mark for each step, and then the end; what it says follows from what it is told."""
    await asyncio.sleep(0.01)
    done = sum(message.type == "AssistantMessage" for message in messages)
    if done == STEPS:
        return f"{done} marks"
    return [FunctionCall(id=f"c{done}", name="mark", arguments=f'{{"step": {done}}}')]


async def runners(runtime: Any) -> None:
    """A type of agents that make long runs."""
    outside = Outside(runtime._url, runtime._namespace)

    def runner() -> ModelAgent[Outside, str]:
        return ModelAgent(ScriptedModel(next_mark), tools=[mark], deps=lambda key: outside, limits=Limits(max_steps=50))

    await ModelAgent.register(runtime, "runner", runner)
