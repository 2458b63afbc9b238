"""Circles of calls: each ends within a second in an error that names it, and everybody goes on working."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext

from stagebell.errors import CallCycleError
from tests.support.agents import Ask, Bound, Doing, Forbidding, agent, echo, host
from tests.support.waiting import eventually


async def outcomes_of(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """What became of calls that are made at once, all within a second."""
    begin = time.monotonic()
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert time.monotonic() - begin < 3  # a second where the machine is not busy with others
    return outcomes


def circles_in(outcomes: Iterable[Any]) -> list[set[str]]:
    """The agents of each circle among these outcomes, all of whose errors must be circles."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert errors
    found: list[set[str]] = []
    for error in errors:
        assert isinstance(error, CallCycleError), repr(error)
        assert error.cycle[0] == error.cycle[-1]
        assert " → ".join(error.cycle) in str(error)
        found.append(set(error.cycle))
    return found


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")], ids=len)
async def test_agents_that_call_each_other_around_get_an_error_and_go_on(
    runtime: Any, start: Any, names: tuple[str, ...]
) -> None:
    met = asyncio.Barrier(len(names))

    async def around(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text != "root":
            return "answered"
        await met.wait()
        following = names[(names.index(agent.id.type) + 1) % len(names)]
        return await agent.call(following)

    for name in names:
        await host(runtime, name, around)
    await start(runtime)
    outcomes = await outcomes_of(runtime.send_message(Ask(text="root"), agent(name)) for name in names)
    for circle in circles_in(outcomes):
        assert circle == {f"{name}/default" for name in names}
    assert await outcomes_of(runtime.send_message(Ask(), agent(name)) for name in names) == ["answered"] * len(names)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)


async def test_of_calls_made_at_once_only_the_one_in_the_circle_gets_the_error(runtime: Any, start: Any) -> None:
    met = asyncio.Barrier(2)

    async def cross(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text != "root":
            return "crossed"
        await met.wait()
        other = "b" if agent.id.type == "a" else "a"
        calls = agent.call("echo", "fine"), agent.call(other)
        return [str(outcome) for outcome in await asyncio.gather(*calls, return_exceptions=True)]

    await host(runtime, "echo", echo)
    for name in ("a", "b"):
        await host(runtime, name, cross)
    await start(runtime)
    outcomes = await outcomes_of(runtime.send_message(Ask(text="root"), agent(name)) for name in ("a", "b"))
    assert [fine for fine, _ in outcomes] == ["fine", "fine"]
    refused = [crossed for _, crossed in outcomes if crossed != "crossed"]
    assert len(refused) == 1
    assert "a/default → b/default" in refused[0]


async def test_a_nested_turn_that_calls_an_agent_which_waits_for_it_is_a_circle(runtime: Any, start: Any) -> None:
    """A awaits B and C; B's nested turn in A calls C, which waits for A to let it in."""
    waits = asyncio.Event()

    async def a(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "from b":
            await waits.wait()
            return await agent.call("c", "again")
        if message.text == "from c":
            return "let in"
        return [str(each) for each in await asyncio.gather(agent.call("b"), agent.call("c"), return_exceptions=True)]

    async def b(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("a", "from b")

    async def c(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "again":
            return "answered"
        asyncio.get_running_loop().call_later(0.02, waits.set)
        return await agent.call("a", "from c")

    for name, ask in (("a", a), ("b", b), ("c", c)):
        await host(runtime, name, ask)
    await start(runtime)
    ((from_b, from_c),) = await outcomes_of([runtime.send_message(Ask(), agent("a"))])
    refused = [text for text in (from_b, from_c) if text not in ("answered", "let in")]
    assert len(refused) == 1
    assert "a/default" in refused[0]
    assert "c/default" in refused[0]


@pytest.mark.parametrize("through", [(), ("b",), ("b", "c")], ids=len)
async def test_an_agent_that_forbids_it_is_not_called_back(runtime: Any, start: Any, through: tuple[str, ...]) -> None:
    async def closed(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if not message.text:
            return "free"
        return await agent.call(through[0] if through else agent.id, "on")

    async def pass_on(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        following = through[through.index(agent.id.type) + 1 :]
        return await agent.call(following[0] if following else "closed", "on")

    await host(runtime, "closed", closed, cls=Forbidding)
    for name in through:
        await host(runtime, name, pass_on)
    await start(runtime)
    (error,) = await outcomes_of([runtime.send_message(Ask(text="on"), agent("closed"))])
    assert isinstance(error, CallCycleError)
    assert error.cycle == [f"{name}/default" for name in ("closed", *through, "closed")]
    assert await runtime.send_message(Ask(), agent("closed")) == "free"


async def test_a_circle_through_an_agent_bound_to_its_process_is_found(runtime: Any, start: Any) -> None:
    met = asyncio.Barrier(2)

    async def a(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text != "root":
            return "answered"
        await met.wait()
        return await agent.call("bound")

    async def b(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text != "root":
            return "answered"
        await met.wait()
        return await agent.call("a")

    async def pass_on(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("b")

    await host(runtime, "bound", pass_on, cls=Bound)
    await host(runtime, "a", a)
    await host(runtime, "b", b)
    await start(runtime)
    outcomes = await outcomes_of(runtime.send_message(Ask(text="root"), agent(name)) for name in ("a", "b"))
    assert {"a/default", "b/default", "bound/default"} in circles_in(outcomes)


async def test_many_who_wait_for_an_agent_that_waits_are_no_circle(runtime: Any, start: Any) -> None:
    """All wait for one agent, it waits for another, and that takes its time."""
    gate = asyncio.Event()
    waiting = 0

    async def hub(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("slow")

    async def slow(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        await gate.wait()
        return "done"

    async def ask_hub(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        nonlocal waiting
        waiting += 1
        return await agent.call("hub")

    await host(runtime, "hub", hub)
    await host(runtime, "slow", slow)
    await host(runtime, "asking", ask_hub)
    await start(runtime)
    asked = asyncio.gather(*(runtime.send_message(Ask(), AgentId("asking", str(n))) for n in range(40)))
    await eventually(lambda: waiting == 40)
    await asyncio.wait([asked], timeout=0.5)  # long enough to be asked about more than once
    gate.set()
    assert await asyncio.wait_for(asked, 5) == ["done"] * 40
