"""The hazards of running a turn in its caller's task."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from autogen_core import CancellationToken, MessageContext, TopicId

from stagebell import LocalRuntime
from stagebell.errors import CallDepthExceeded
from tests.support.agents import Ask, Doing, Note, agent, collect, host
from tests.support.waiting import eventually, turns_of_the_loop

pytestmark = pytest.mark.runtime


async def forever(agent: Doing, message: Ask, ctx: MessageContext) -> None:
    await asyncio.Event().wait()


async def test_a_time_out_around_a_call_ends_the_wait_and_sets_the_token(runtime: Any, ready: Any) -> None:
    tokens: list[CancellationToken] = []

    async def slow(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        tokens.append(ctx.cancellation_token)
        await asyncio.Event().wait()

    await ready("slow", slow)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("slow")), 0.02)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await runtime.send_message(Ask(), agent("slow"))
    assert [token.is_cancelled() for token in tokens] == [True, True]
    await asyncio.wait_for(runtime.stop_when_idle(), 1)
    runtime.start()


async def test_a_time_out_around_a_waiting_call_ends_the_wait_and_its_turn(runtime: Any, ready: Any) -> None:
    gate, ran = asyncio.Event(), []

    async def busy(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        ran.append(message.text)
        await gate.wait()

    await ready("busy", busy)
    first = asyncio.create_task(runtime.send_message(Ask(text="first"), agent("busy")))
    await eventually(lambda: ran)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.send_message(Ask(text="second"), agent("busy")), 0.02)
    assert not first.done()
    gate.set()
    await first
    await runtime.stop_when_idle()
    runtime.start()
    assert ran == ["first"]


async def test_a_task_that_does_not_belong_to_the_turn_is_not_harmed(runtime: Any, ready: Any) -> None:
    """The handler awaits a task of somebody else through a shield; the time-out leaves that task alone."""
    gate = asyncio.Event()
    foreign = asyncio.create_task(gate.wait())

    async def waits(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await asyncio.shield(foreign)

    await ready("waits", waits)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("waits")), 0.02)
    assert not foreign.done()
    gate.set()
    assert await foreign is True
    me = asyncio.current_task()
    assert me is not None
    assert me.cancelling() == 0


@pytest.mark.parametrize("waits_by", ["a future", "yielding"])
async def test_a_handler_that_swallows_its_cancellation_does_not_hold_the_caller(
    runtime: Any, ready: Any, waits_by: str
) -> None:
    release, ended = asyncio.Event(), asyncio.Event()

    async def stubborn(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if waits_by == "a future":
                await release.wait()
            else:
                while not release.is_set():
                    await asyncio.sleep(0)
        ended.set()

    await ready("stubborn", stubborn)
    call = asyncio.create_task(runtime.send_message(Ask(), agent("stubborn")))
    await turns_of_the_loop()
    call.cancel()
    done, _ = await asyncio.wait({call}, timeout=1.0)  # the grace is 0.05 s
    release.set()
    assert done
    assert call.cancelled()
    await asyncio.wait_for(ended.wait(), 1)  # the handler went on by itself


async def test_a_stubborn_handler_blocks_its_agent_until_it_ends(runtime: Any, ready: Any) -> None:
    release, order = asyncio.Event(), []

    async def stubborn(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        if message.text == "first":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await release.wait()
        order.append(message.text)
        return message.text

    await ready("stubborn", stubborn)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.send_message(Ask(text="first"), agent("stubborn")), 0.02)
    second = asyncio.create_task(runtime.send_message(Ask(text="second"), agent("stubborn")))
    await turns_of_the_loop()
    assert not second.done()
    release.set()
    assert await asyncio.wait_for(second, 1) == "second"
    assert order == ["first", "second"]


async def test_the_current_task_is_the_same_at_every_line_of_a_handler(runtime: Any, ready: Any) -> None:
    seen: list[Any] = []

    async def quick(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        if message.text == "suspend":
            await asyncio.sleep(0)

    async def handler(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        tasks: list[Any] = []
        seen.append(tasks)

        def look() -> None:
            tasks.append(asyncio.current_task())

        look()
        await agent.call("quick")
        look()
        await agent.call("quick", "suspend")
        look()
        await agent.publish_message(Note(), TopicId("news", "d"))
        look()
        await asyncio.sleep(0.001)
        look()
        await asyncio.gather(agent.call("quick"), agent.call("quick", "suspend"))
        look()

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await handler(agent, Ask(), ctx)

    await ready("quick", quick)
    await ready("inline", handler)
    await host(runtime, "published", handler, note, topics=("start",))
    await runtime.send_message(Ask(), agent("inline"))
    await runtime.publish_message(Note(), TopicId("start", "default"))
    await asyncio.gather(*(runtime.send_message(Ask(), agent("inline")) for _ in range(2)))  # the second is queued
    await eventually(lambda: len(seen) == 4 and all(len(tasks) == 6 for tasks in seen))
    assert [len(set(tasks)) for tasks in seen] == [1, 1, 1, 1]


async def test_a_time_out_inside_a_handler_is_the_handlers_own(runtime: Any, ready: Any) -> None:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.005):
                    await asyncio.Event().wait()
            except TimeoutError:
                pass
        return ctx.cancellation_token.is_cancelled()

    await ready("patient", ask)
    assert await runtime.send_message(Ask(), agent("patient")) is False
    calls = [runtime.send_message(Ask(), agent("patient")) for _ in range(3)]
    assert await asyncio.gather(*calls) == [False] * 3


async def test_a_time_out_inside_a_handler_may_clean_up_and_go_on_for_longer_than_the_grace(
    runtime: Any, ready: Any
) -> None:
    """Nobody cancelled the call: the cancellation was the time-out's, and it was dealt with."""

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            async with asyncio.timeout(0.005):
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.001)  # cleans up while the cancellation is still on its way
        except TimeoutError:
            pass
        await asyncio.sleep(0.15)  # the grace is 0.05 s
        return ctx.cancellation_token.is_cancelled()

    await ready("careful", ask)
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("careful")), 2) is False


@pytest.mark.parametrize("fails", ["while the body waits", "at the end of the body"])
async def test_a_task_group_inside_a_handler_may_fail_and_the_handler_go_on(
    runtime: Any, ready: Any, fails: str
) -> None:
    async def fail() -> None:
        raise ValueError("a child failed")

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.001)

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(slow())
                group.create_task(fail())
                if fails == "while the body waits":
                    await asyncio.Event().wait()
        except* ValueError:
            pass
        await asyncio.sleep(0.15)  # the grace is 0.05 s
        return ctx.cancellation_token.is_cancelled()

    await ready("group", ask)
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("group")), 2) is False


async def test_a_time_out_around_a_call_inside_a_handler_ends_that_call_alone(runtime: Any, ready: Any) -> None:
    inner: list[CancellationToken] = []

    async def slow(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        inner.append(ctx.cancellation_token)
        await asyncio.Event().wait()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            async with asyncio.timeout(0.01):
                await agent.call("slow")
        except TimeoutError:
            return "timed out", ctx.cancellation_token.is_cancelled()
        return "answered"

    await ready("slow", slow)
    await ready("caller", ask)
    assert await runtime.send_message(Ask(), agent("caller")) == ("timed out", False)
    assert inner[0].is_cancelled()


async def test_anyios_cancel_scopes_work_inside_a_handler(runtime: Any, ready: Any) -> None:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        with anyio.move_on_after(0.01) as scope:
            await agent.call("slow")
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.001)
        return scope.cancelled_caught, ctx.cancellation_token.is_cancelled()

    await ready("slow", forever)
    await ready("caller", ask)
    assert await runtime.send_message(Ask(), agent("caller")) == (True, False)


async def test_a_chain_of_nine_hundred_agents_is_within_the_limits(runtime: Any) -> None:
    async def next_one(agent: Doing, message: Ask, ctx: MessageContext) -> int:
        if message.number == 0:
            return 0
        following = f"{int(agent.id.key) + 1}"
        return 1 + int(await agent.call(type(agent.id)(agent.id.type, following), number=message.number - 1))

    await host(runtime, "link", next_one)
    for _ in range(2):  # first with agents that have to be made, then inline
        assert await runtime.send_message(Ask(number=900), agent("link", "0")) == 900


@pytest.mark.parametrize("suspends", [False, True])
async def test_an_agent_that_calls_itself_without_end_gets_an_error(runtime: Any, ready: Any, suspends: bool) -> None:
    depth = 0

    async def deeper(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        nonlocal depth
        depth += 1
        if suspends:
            await asyncio.sleep(0)
        return await agent.call(agent.id)

    await ready("deep", deeper)
    with pytest.raises(CallDepthExceeded) as caught:
        await asyncio.wait_for(runtime.send_message(Ask(), agent("deep")), 20)
    assert caught.value.limit == 1000
    assert 900 <= depth <= 1010


async def test_a_lower_limit_of_depth_is_kept() -> None:
    async with LocalRuntime(max_call_depth=3) as runtime:

        async def down(agent: Doing, message: Ask, ctx: MessageContext) -> int:
            return 0 if message.number == 0 else 1 + int(await agent.call(agent.id, number=message.number - 1))

        await host(runtime, "deep", down)
        await runtime.get(agent("deep"), lazy=False)
        assert await runtime.send_message(Ask(number=2), agent("deep")) == 2
        with pytest.raises(CallDepthExceeded):
            await runtime.send_message(Ask(number=6), agent("deep"))


async def test_calls_of_one_caller_are_let_in_in_order_also_when_they_come_back(runtime: Any, ready: Any) -> None:
    """While A awaits B, B calls A three times: the third may not pass the second that already waits."""
    seen: list[str] = []

    async def a(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        if message.text == "start":
            await agent.call("b")
            return
        seen.append(message.text)
        await asyncio.sleep(0)

    async def b(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        async def first_and_third() -> None:
            await agent.call("a", "first")
            await agent.call("a", "third")

        await asyncio.gather(first_and_third(), agent.call("a", "second"))

    await ready("a", a)
    await ready("b", b)
    await runtime.send_message(Ask(text="start"), agent("a"))
    assert seen == ["first", "second", "third"]


async def test_a_task_that_outlives_its_turn_may_still_publish_and_call(runtime: Any, ready: Any) -> None:
    gate, seen = asyncio.Event(), []
    tasks: list[asyncio.Task[Any]] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        async def later() -> Any:
            await gate.wait()
            await agent.publish_message(Note(text="published"), TopicId("news", "d"))
            return await agent.call("other")

        tasks.append(asyncio.create_task(later()))
        return "answered"

    async def other(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        return "called"

    await ready("spawner", ask)
    await ready("other", other)
    await host(runtime, "reader", note=collect(seen), topics=("news",))
    assert await runtime.send_message(Ask(), agent("spawner")) == "answered"
    gate.set()
    assert await asyncio.wait_for(tasks[0], 1) == "called"
    await eventually(lambda: seen == ["published"])
