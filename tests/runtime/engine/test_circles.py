"""Circles of calls in memory: found at the call that would close them. The others are in the contract."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import MessageContext

from stagebell.errors import CallCycleError
from tests.support.agents import Ask, Doing, Interleaved, agent

pytestmark = pytest.mark.runtime


async def test_a_nested_turn_that_calls_an_agent_which_waits_for_it_is_a_circle(runtime: Any, ready: Any) -> None:
    """A awaits B and C; B's nested turn in A calls C, which waits for A to let it in."""
    waits = asyncio.Event()

    async def a(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "from b":
            await waits.wait()
            return await agent.call("c")
        if message.text == "from c":
            return "let in"
        return await asyncio.gather(agent.call("b"), agent.call("c"), return_exceptions=True)

    async def b(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("a", "from b")

    async def c(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        asyncio.get_running_loop().call_later(0.01, waits.set)
        return await agent.call("a", "from c")

    for name, ask in (("a", a), ("b", b), ("c", c)):
        await ready(name, ask)
    from_b, from_c = await asyncio.wait_for(runtime.send_message(Ask(), agent("a")), 2)
    assert isinstance(from_b, CallCycleError)
    assert from_c == "let in"


async def test_interleaved_turns_overlap(runtime: Any, ready: Any) -> None:
    met = asyncio.Barrier(3)

    async def meet(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await met.wait()

    await ready("open", meet, cls=Interleaved)
    calls = (runtime.send_message(Ask(), agent("open")) for _ in range(3))
    await asyncio.wait_for(asyncio.gather(*calls), 2)
