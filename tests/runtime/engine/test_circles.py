"""Circles of calls: found at the call that would close them, and named."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from autogen_core import MessageContext

from stagebell.errors import CallCycleError
from tests.support.agents import Ask, Doing, Forbidding, Interleaved, agent

pytestmark = pytest.mark.runtime


async def test_waiting_for_each_other_is_found_within_a_second_and_names_the_circle(runtime: Any, ready: Any) -> None:
    met = asyncio.Barrier(2)

    async def cross(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text != "root":
            return None
        await met.wait()
        return await agent.call("b" if agent.id.type == "a" else "a")

    await ready("a", cross)
    await ready("b", cross)
    begin = time.monotonic()
    calls = (runtime.send_message(Ask(text="root"), agent(name)) for name in ("a", "b"))
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert time.monotonic() - begin < 1
    errors = [outcome for outcome in outcomes if isinstance(outcome, CallCycleError)]
    assert errors
    cycle = errors[0].cycle
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"a/default", "b/default"}


@pytest.mark.parametrize("through_gather", [False, True])
async def test_a_circle_of_three_is_found(runtime: Any, ready: Any, through_gather: bool) -> None:
    met = asyncio.Barrier(3)
    following = {"a": "b", "b": "c", "c": "a"}

    async def harmless(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await asyncio.sleep(0)

    async def around(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text != "root":
            return None
        await met.wait()
        call = agent.call(following[agent.id.type])
        return await (asyncio.gather(agent.call("harmless", agent.id.type), call) if through_gather else call)

    await ready("harmless", harmless)
    for name in following:
        await ready(name, around)
    calls = (runtime.send_message(Ask(text="root"), agent(name)) for name in following)
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 2)
    errors = [outcome for outcome in outcomes if isinstance(outcome, CallCycleError)]
    assert errors
    assert set(errors[0].cycle) == {"a/default", "b/default", "c/default"}


async def test_an_agent_that_forbids_it_is_not_called_back(runtime: Any, ready: Any) -> None:
    async def self_call(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call(agent.id)

    async def via_b(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("b")

    async def back(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("via")

    await ready("self", self_call, cls=Forbidding)
    await ready("via", via_b, cls=Forbidding)
    await ready("b", back)
    for name in ("self", "via"):
        with pytest.raises(CallCycleError) as caught:
            await asyncio.wait_for(runtime.send_message(Ask(), agent(name)), 1)
        assert caught.value.cycle[0] == caught.value.cycle[-1]


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
