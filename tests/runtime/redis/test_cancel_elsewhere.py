"""Cancellation across processes: two runtimes over one server, each with agent types of its own."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import pytest
from autogen_core import CancellationToken, MessageContext, TopicId

from stagebell import Publisher, RedisRuntime
from tests.runtime.redis.two_runtimes import Two, Waiting, cancelled
from tests.support.agents import Ask, Bound, Counting, Doing, Note, agent, collect, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_a_token_reaches_the_handler_and_then_its_task_is_cancelled(two: Two) -> None:
    waiting, token, seen = Waiting(), CancellationToken(), asyncio.Event()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        ctx.cancellation_token.add_callback(seen.set)
        await waiting(agent, message, ctx)

    await host(two.far, "slow", ask)
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("slow"), cancellation_token=token))
    await asyncio.wait_for(waiting.entered.wait(), 5)
    token.cancel()
    await cancelled(call)
    await asyncio.wait_for(seen.wait(), 1)
    await eventually(lambda: waiting.tokens == [True])
    await two.at_rest()


async def test_a_cancel_is_observed_at_once(two: Two) -> None:
    seen: asyncio.Queue[float] = asyncio.Queue()
    entered: asyncio.Queue[None] = asyncio.Queue()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        ctx.cancellation_token.add_callback(lambda: seen.put_nowait(time.perf_counter()))
        entered.put_nowait(None)
        await asyncio.Event().wait()

    await host(two.far, "slow", ask)
    await two.start()
    took: list[float] = []
    for number in range(10):
        token = CancellationToken()
        call = asyncio.create_task(two.near.send_message(Ask(), agent("slow", f"{number}"), cancellation_token=token))
        await asyncio.wait_for(entered.get(), 5)
        cancelled_at = time.perf_counter()
        token.cancel()
        took.append(await asyncio.wait_for(seen.get(), 5) - cancelled_at)
        await cancelled(call)
    print(f"observed after {statistics.median(took) * 1000:.1f} ms (median of {len(took)})")
    assert statistics.median(took) < 1.0  # a machine with nothing else to do: about 1 ms
    await two.at_rest()


async def test_a_caller_whose_task_is_cancelled_cancels_its_call(two: Two) -> None:
    waiting = Waiting()
    await host(two.far, "slow", waiting)
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("slow")))
    await asyncio.wait_for(waiting.entered.wait(), 5)
    call.cancel()
    await cancelled(call)
    await eventually(lambda: waiting.tokens == [True])
    await two.at_rest()


async def test_a_call_is_cancelled_when_its_publisher_gives_it_up(two: Two, server: Server, namespace: str) -> None:
    waiting = Waiting()
    await host(two.far, "slow", waiting)
    await two.start()
    async with Publisher(server.url, namespace=namespace) as publisher:
        call = asyncio.create_task(publisher.call(Ask(), agent("slow")))
        await asyncio.wait_for(waiting.entered.wait(), 5)
        call.cancel()
        await cancelled(call)
    await eventually(lambda: waiting.tokens == [True])
    await two.at_rest()


async def test_nested_calls_are_cancelled_in_every_process(two: Two) -> None:
    deep, token, middle = Waiting(), CancellationToken(), []

    async def there(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            return await agent.call("back")
        finally:
            middle.append(ctx.cancellation_token.is_cancelled())

    async def back(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("deep")

    await host(two.far, "there", there)
    await host(two.near, "back", back)
    await host(two.far, "deep", deep)
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("there"), cancellation_token=token))
    await asyncio.wait_for(deep.entered.wait(), 5)
    token.cancel()
    await cancelled(call)
    await eventually(lambda: deep.tokens == [True] and middle == [True])
    await two.at_rest()


async def test_a_handler_that_gives_a_call_up_goes_on(two: Two) -> None:
    waiting = Waiting()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        try:
            await asyncio.wait_for(agent.call("slow"), 0.2)
        except TimeoutError:
            return "gave up"
        return "answered"

    await host(two.near, "asks", ask)
    await host(two.far, "slow", waiting)
    await two.start()
    assert await asyncio.wait_for(two.near.send_message(Ask(), agent("asks")), 5) == "gave up"
    await eventually(lambda: waiting.tokens == [True])
    await two.at_rest()


async def test_a_handler_that_runs_again_gives_the_same_call_up_again(two: Two, server: Server, namespace: str) -> None:
    slow, gate, ran, again = Waiting(), asyncio.Event(), [], []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        ran.append(agent)
        try:
            await asyncio.wait_for(agent.call("slow"), 0.2)
        except TimeoutError:
            again.append(agent)
            if len(ran) == 1:
                await gate.wait()
            return "gave up"
        return "answered"

    await host(two.near, "asks", ask)
    await host(two.far, "slow", slow)
    await two.start()
    async with (
        RedisRuntime(server.url, namespace=namespace) as third,
        Publisher(server.url, namespace=namespace) as publisher,
    ):
        call = asyncio.create_task(publisher.call(Ask(), agent("asks")))
        await eventually(lambda: again, within=5)
        await eventually(lambda: slow.tokens)
        await host(third, "asks", ask)
        await two.near.close()
        assert await asyncio.wait_for(call, 10) == "gave up"
    assert (len(ran), slow.cancelled) == (2, 1)
    await two.at_rest()


async def test_what_a_cancelled_turn_did_is_discarded_whatever_it_returns(two: Two) -> None:
    token, entered, seen, count = CancellationToken(), asyncio.Event(), [], []

    class Stubborn(Counting):
        async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
            if message.text == "count":
                count.append(self.count)
                return self.count
            self.count += 1
            await self.publish_message(Note(text="no"), TopicId("notes", "x"))
            entered.set()
            while not ctx.cancellation_token.is_cancelled():
                await asyncio.sleep(0.001)
            return "done all the same"

    await Stubborn.register(two.far, "stubborn", Stubborn)
    await host(two.near, "hears", note=collect(seen), topics=("notes",))
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("stubborn"), cancellation_token=token))
    await asyncio.wait_for(entered.wait(), 5)
    token.cancel()
    await cancelled(call)
    assert await two.near.send_message(Ask(text="count"), agent("stubborn")) == 0
    await two.at_rest()
    assert not seen


async def test_a_handler_that_goes_on_after_its_grace_holds_nobody_up(two: Two) -> None:
    waiting, token = Waiting(stubborn=1), CancellationToken()
    await host(two.far, "slow", waiting)
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("slow"), cancellation_token=token))
    await asyncio.wait_for(waiting.entered.wait(), 5)
    token.cancel()
    await cancelled(call)
    await eventually(lambda: waiting.cancelled == 1)
    await two.far.stop()


async def test_calls_that_wait_elsewhere_are_dropped_without_running(two: Two) -> None:
    gate, entered, ran, tokens = asyncio.Event(), asyncio.Event(), [], CancellationToken()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        ran.append(message.text)
        entered.set()
        await gate.wait()
        return message.text

    await host(two.far, "busy", ask)
    await two.start()
    first = asyncio.create_task(two.near.send_message(Ask(text="first"), agent("busy")))
    await asyncio.wait_for(entered.wait(), 5)
    waiting = [
        asyncio.create_task(two.near.send_message(Ask(text=f"{n}"), agent("busy"), cancellation_token=tokens))
        for n in range(5)
    ]
    await eventually(lambda: two.view.backlog() == 6)
    tokens.cancel()
    for call in waiting:
        await cancelled(call)
    await eventually(lambda: two.view.backlog() == 1)
    gate.set()
    assert await asyncio.wait_for(first, 5) == "first"
    await two.at_rest()
    assert ran == ["first"]


async def test_a_call_that_is_cancelled_before_it_was_sent_is_dropped(two: Two) -> None:
    ran: list[str] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        ran.append(message.text)
        return message.text

    await host(two.far, "quick", ask)
    await two.start()
    for rounds in range(8):
        call = asyncio.create_task(two.near.send_message(Ask(text="x"), agent("quick")))
        for _ in range(rounds):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
    await two.at_rest()


async def test_a_lost_bell_does_not_lose_a_cancel(two: Two) -> None:
    waiting = Waiting()
    await host(two.far, "slow", waiting)
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("slow")))
    await asyncio.wait_for(waiting.entered.wait(), 5)
    (inbox,) = [key for key in two.view.keys(":in") if two.view.client.xlen(key)]
    ((entry_id, fields),) = two.view.client.xrange(inbox)
    two.view.client.xadd(inbox[:-2] + "ctl", {"m": fields[b"m"], "i": entry_id, "w": "cancel"})
    await cancelled(call)
    await eventually(lambda: waiting.tokens == [True])
    await two.at_rest()


@pytest.mark.parametrize("inside", [False, True], ids=["from outside", "from a turn"])
async def test_a_token_on_a_publish_cancels_those_who_handle_it_and_those_who_have_not_begun(
    two: Two, inside: bool
) -> None:
    waiting, token, tokens, bound = Waiting(), CancellationToken(), [], []

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await waiting(agent, message, ctx)

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        for number in range(2):
            await agent.publish_message(Note(number=number), TopicId("notes", "x"), cancellation_token=token)

    async def hears(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await asyncio.sleep(0.05)
        bound.append(message.number)
        tokens.append(ctx.cancellation_token.is_cancelled())

    await host(two.near, "asks", ask)
    await host(two.far, "slow", note=note, topics=("notes",))
    await host(two.far, "desk", note=hears, topics=("notes",), cls=Bound)
    await two.start()
    if inside:
        await two.near.send_message(Ask(), agent("asks"))
    else:
        for number in range(2):
            await two.near.publish_message(Note(number=number), TopicId("notes", "x"), cancellation_token=token)
    await asyncio.wait_for(waiting.entered.wait(), 5)
    token.cancel()
    await eventually(lambda: waiting.tokens == [True])
    await two.at_rest()
    await eventually(lambda: sorted(bound) == [0, 1])
    assert waiting.cancelled == 1
    assert tokens == [False, False]
    assert not two.view.dead_letters()


async def test_a_process_bound_caller_that_is_cancelled_cancels_its_call_elsewhere(two: Two) -> None:
    waiting, token = Waiting(), CancellationToken()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("slow")

    await host(two.near, "bound", ask, cls=Bound)
    await host(two.far, "slow", waiting)
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("bound"), cancellation_token=token))
    await asyncio.wait_for(waiting.entered.wait(), 5)
    token.cancel()
    await cancelled(call)
    await eventually(lambda: waiting.tokens == [True])
    await two.at_rest()


async def test_another_run_on_the_same_worker_is_not_touched(two: Two) -> None:
    waiting, token, gate = Waiting(), CancellationToken(), asyncio.Event()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        await gate.wait()
        return await echo(agent, message, ctx)

    await host(two.far, "slow", waiting)
    await host(two.far, "other", ask)
    await two.start()
    call = asyncio.create_task(two.near.send_message(Ask(), agent("slow"), cancellation_token=token))
    other = asyncio.create_task(two.near.send_message(Ask(text="b"), agent("other")))
    await asyncio.wait_for(waiting.entered.wait(), 5)
    token.cancel()
    await cancelled(call)
    gate.set()
    assert await asyncio.wait_for(other, 5) == "b"
    await two.at_rest()


async def test_nothing_is_left_after_many_cancels(two: Two) -> None:
    waiting = Waiting()
    await host(two.far, "slow", waiting)
    await two.start()
    await two.near.send_message(Note(), agent("slow", "warm"))
    before = len(asyncio.all_tasks())
    calls = [asyncio.create_task(two.near.send_message(Ask(), agent("slow", f"{n % 7}"))) for n in range(40)]
    await asyncio.wait_for(waiting.entered.wait(), 5)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await two.at_rest()
    await eventually(lambda: len(asyncio.all_tasks()) <= before)
