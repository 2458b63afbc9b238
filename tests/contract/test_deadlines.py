"""Deadlines of calls and publishes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId

import stagebell
from stagebell.errors import DeadlineExceeded
from tests.support.agents import Ask, Bound, Doing, Note, agent, collect, echo, host
from tests.support.waiting import eventually


async def forever(agent: Doing, message: Ask, ctx: MessageContext) -> None:
    await asyncio.Event().wait()


async def test_a_call_ends_at_its_deadline_and_its_handler_is_cancelled(runtime: Any, start: Any) -> None:
    seen: list[bool] = []

    async def wait(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.cancellation_token.is_cancelled())

    await host(runtime, "slow", wait)
    await start(runtime)
    with stagebell.deadline(0.3), pytest.raises(DeadlineExceeded) as raised:
        await asyncio.wait_for(runtime.send_message(Ask(), agent("slow")), 5)
    assert isinstance(raised.value, TimeoutError)
    assert raised.value.recipient == "slow/default"
    assert raised.value.deadline > 1_700_000_000_000
    await eventually(lambda: seen)
    assert seen == [True]
    await asyncio.wait_for(runtime.stop_when_idle(), 5)


async def test_an_answer_in_time_is_not_touched(runtime: Any, start: Any) -> None:
    await host(runtime, "quick", echo)
    await start(runtime)
    with stagebell.deadline(30):
        assert await runtime.send_message(Ask(text="a"), agent("quick")) == "a"
    assert stagebell.remaining() is None


async def test_the_earliest_deadline_counts(runtime: Any, start: Any) -> None:
    left: list[float | None] = []

    async def look(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        left.append(stagebell.remaining())
        if message.text == "outer":
            with stagebell.deadline(100):
                await agent.call("inner")

    await host(runtime, "outer", look)
    await host(runtime, "inner", look)
    await start(runtime)
    with stagebell.deadline(20), stagebell.deadline(60):
        await runtime.send_message(Ask(text="outer"), agent("outer"))
    await runtime.send_message(Ask(text="none"), agent("inner"))
    outer, inner, none = left
    assert outer
    assert 10 < outer <= 20
    assert inner
    assert 10 < inner <= 20
    assert none is None


async def test_nested_calls_inherit_the_deadline(runtime: Any, start: Any) -> None:
    cancelled: list[str] = []

    async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            return await agent.call("inner")
        except BaseException:
            cancelled.append("outer")
            raise

    async def inner(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("inner")

    await host(runtime, "inner", inner)
    await host(runtime, "outer", outer)
    await start(runtime)
    with stagebell.deadline(0.3), pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("outer")), 5)
    await eventually(lambda: len(cancelled) == 2)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)


async def test_a_handler_goes_on_after_a_call_of_it_was_too_slow(runtime: Any, start: Any) -> None:
    async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        try:
            with stagebell.deadline(0.2):
                await agent.call("inner")
        except DeadlineExceeded as error:
            return f"gave up {error.recipient}"
        return "no"

    await host(runtime, "inner", forever)
    await host(runtime, "outer", outer)
    await start(runtime)
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("outer")), 5) == "gave up inner/default"
    await asyncio.wait_for(runtime.stop_when_idle(), 5)


async def test_a_call_that_still_waits_at_its_deadline_is_not_handled(runtime: Any, start: Any) -> None:
    gate, entered, ran = asyncio.Event(), asyncio.Event(), []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        ran.append(message.text)
        entered.set()
        await gate.wait()

    await host(runtime, "busy", ask)
    await start(runtime)
    first = asyncio.create_task(runtime.send_message(Ask(text="first"), agent("busy")))
    await asyncio.wait_for(entered.wait(), 5)
    with stagebell.deadline(0.2), pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(runtime.send_message(Ask(text="second"), agent("busy")), 5)
    gate.set()
    await asyncio.wait_for(first, 5)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
    assert ran == ["first"]


async def test_a_deadline_that_is_over_is_refused_at_once(runtime: Any, start: Any) -> None:
    ran: list[Any] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        ran.append(message)

    await host(runtime, "never", ask)
    await start(runtime)
    with stagebell.deadline(0), pytest.raises(DeadlineExceeded):
        await runtime.send_message(Ask(), agent("never"))
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
    assert not ran


async def test_a_call_to_a_process_bound_agent_ends_at_its_deadline(runtime: Any, start: Any) -> None:
    await host(runtime, "bound", forever, cls=Bound)
    await start(runtime)
    with stagebell.deadline(0.2), pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("bound")), 5)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)


async def test_a_publish_that_comes_too_late_is_not_handled(runtime: Any, start: Any) -> None:
    gate, entered, seen = asyncio.Event(), asyncio.Event(), []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        entered.set()
        await gate.wait()

    await host(runtime, "busy", ask, collect(seen), topics=("notes",))
    await start(runtime)
    first = asyncio.create_task(runtime.send_message(Ask(), agent("busy", "x")))
    await asyncio.wait_for(entered.wait(), 5)
    with stagebell.deadline(0.2):
        await runtime.publish_message(Note(text="late"), TopicId("notes", "x"))
        await eventually(lambda: stagebell.remaining() == 0)
    await runtime.publish_message(Note(text="other"), TopicId("notes", "x"))
    gate.set()
    await asyncio.wait_for(first, 5)
    await eventually(lambda: seen)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
    assert seen == ["other"]


async def test_the_turn_of_a_publish_is_cancelled_at_its_deadline(runtime: Any, start: Any) -> None:
    ended: list[bool] = []

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(ctx.cancellation_token.is_cancelled())

    await host(runtime, "slow", note=note, topics=("notes",))
    await start(runtime)
    with stagebell.deadline(0.3):
        await runtime.publish_message(Note(), TopicId("notes", "x"))
    await eventually(lambda: ended, within=5)
    assert ended == [True]
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
