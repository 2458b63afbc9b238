"""An answer is told while it is written. Whoever reads along holds nothing: a slow reader, one that goes away and a
model that stalls are no leaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import AgentId, ClosureAgent, ClosureContext, MessageContext, TypeSubscription

from stagebell import LocalRuntime
from stagebell.agents.limits import Limits
from stagebell.agents.messages import TokenChunk
from stagebell.agents.runs import Runs
from stagebell.messages.conversation import RunStatus
from stagebell.testing import ScriptedModel
from stagebell.tools.tool import tool
from tests.support.loops import host_model, run, says, wants
from tests.support.waiting import eventually

pytestmark = pytest.mark.runtime


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """In memory, started."""
    async with LocalRuntime(stop_grace=0.1) as runtime:
        yield runtime


class Stalling(ScriptedModel):
    """Says one word, and then nothing for ever."""

    def __init__(self) -> None:
        super().__init__([])
        self.open = 0

    async def create_stream(self, *args: Any, **options: Any) -> Any:
        self.open += 1
        try:
            yield "well "
            await asyncio.Event().wait()
        finally:
            self.open -= 1


async def test_an_answer_is_told_while_it_is_written(runtime: LocalRuntime) -> None:
    chunks: list[TokenChunk] = []
    first = asyncio.Event()
    gate = asyncio.Event()

    async def hear(context: ClosureContext, message: TokenChunk, ctx: MessageContext) -> None:
        chunks.append(message)
        first.set()

    await ClosureAgent.register_closure(
        runtime, "screen", hear, subscriptions=lambda: [TypeSubscription("assistant.tokens", "screen")]
    )

    class Slow(ScriptedModel):
        async def create_stream(self, *args: Any, **options: Any) -> Any:
            async for chunk in super().create_stream(*args, **options):
                yield chunk
                if isinstance(chunk, str):
                    await gate.wait()

    await host_model(runtime, Slow(["one two three"]), stream=True)
    handle = await Runs(runtime).start("assistant", "count")
    await asyncio.wait_for(first.wait(), 5)
    assert chunks[0].text == "one "
    gate.set()
    assert (await handle.result()).output == "one two three"
    await runtime._dispatcher.wait_idle()
    assert "".join(chunk.text for chunk in chunks) == "one two three"
    assert [chunk.index for chunk in chunks] == [0, 1, 2, 3]
    assert chunks[-1].last
    assert {chunk.run_id for chunk in chunks} == {handle.run_id}


async def test_a_cancelled_stream_is_closed(runtime: LocalRuntime) -> None:
    entered, closed = asyncio.Event(), asyncio.Event()

    class Endless(ScriptedModel):
        async def create_stream(self, *args: Any, **options: Any) -> Any:
            try:
                yield "and "
                entered.set()
                await asyncio.Event().wait()
            finally:
                closed.set()

    await host_model(runtime, Endless([]), stream=True)
    handle = await Runs(runtime).start("assistant", "go")
    await asyncio.wait_for(entered.wait(), 5)
    assert await handle.cancel() is RunStatus.CANCELLED
    await asyncio.wait_for(closed.wait(), 1)


async def test_a_stream_that_stalls_ends_in_its_time_and_is_closed(runtime: LocalRuntime) -> None:
    before, model = asyncio.all_tasks(), Stalling()
    limits = Limits(model_retries=1)
    await host_model(runtime, model, stream=True, request_timeout=0.05, limits=limits)
    result = await run(runtime)
    assert (result.status, result.reason) == ("failed", "model_error")
    assert "within 0.05 seconds" in result.text
    assert model.open == 0
    await eventually(lambda: asyncio.all_tasks() == before)


async def test_a_reader_that_stalls_holds_nobody_up(runtime: LocalRuntime) -> None:
    entered = asyncio.Event()

    async def stall(context: ClosureContext, message: TokenChunk, ctx: MessageContext) -> None:
        entered.set()
        await asyncio.Event().wait()

    await ClosureAgent.register_closure(
        runtime, "screen", stall, subscriptions=lambda: [TypeSubscription("assistant.tokens", "screen")]
    )
    await host_model(runtime, says("one two three"), stream=True)
    assert (await asyncio.wait_for(run(runtime), 5)).output == "one two three"
    await asyncio.wait_for(entered.wait(), 5)


async def test_a_reader_of_events_that_goes_away_leaves_nothing_behind(runtime: LocalRuntime) -> None:
    gate = asyncio.Event()

    async def script(messages: Any, tools: Any) -> Any:
        if len(messages) == 1:
            return [wants("look")]
        await gate.wait()
        return "done"

    await host_model(runtime, ScriptedModel(script), tools=[tool(lambda: "seen", name="look")])
    handle = await Runs(runtime).start("assistant", "x", conversation="c")
    seen: list[str] = []

    async def follow(until: str = "") -> None:
        async for happened in handle.events():
            seen.append(happened.entry.kind)
            if happened.entry.kind == until:
                break

    await asyncio.wait_for(follow(until="asked"), 5)
    following = asyncio.create_task(follow())
    await eventually(lambda: seen == ["asked", "asked", "decided", "returned"], 5)
    following.cancel()
    await asyncio.wait([following], timeout=1)
    assert following.cancelled()
    gate.set()
    assert (await asyncio.wait_for(handle.result(), 5)).output == "done"
    state = await runtime.agent_save_state(AgentId("assistant", "c"))
    assert "readers" not in state["control"]
