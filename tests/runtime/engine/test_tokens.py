"""Cancellation is a tree: what a token reaches, and what it leaves alone."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from autogen_core import CancellationToken, MessageContext, TopicId

from stagebell import LocalRuntime
from tests.support.agents import Ask, Bound, Doing, Note, agent, echo, host
from tests.support.waiting import eventually, turns_of_the_loop

pytestmark = pytest.mark.runtime


def waiting(entered: list[Any], ended: list[Any]) -> Any:
    async def ask(agent: Doing, message: Any, ctx: MessageContext) -> None:
        entered.append((agent.id, ctx))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(agent.id)
            raise

    return ask


@pytest.mark.parametrize("how", ["inline", "queued"])
async def test_the_caller_of_a_cancelled_call_does_not_wait_for_a_slow_handler(how: str) -> None:
    """A token takes effect at once for the caller, whatever grace the handler has to clean up."""
    entered: list[Any] = []
    token = CancellationToken()
    async with LocalRuntime(cancel_grace=3.0, stop_grace=0.1) as runtime:
        await host(runtime, "slow", waiting(entered, []))
        if how == "inline":
            await runtime.get(agent("slow"), lazy=False)
        call = asyncio.create_task(runtime.send_message(Ask(), agent("slow"), cancellation_token=token))
        await eventually(lambda: entered)
        token.cancel()
        done, _ = await asyncio.wait({call}, timeout=0.5)
        assert done
        assert call.cancelled()


async def test_a_handler_that_ignores_its_token_is_cancelled_after_the_grace(runtime: Any, ready: Any) -> None:
    entered, ended = [], []
    token = CancellationToken()
    await ready("slow", waiting(entered, ended))
    call = asyncio.create_task(runtime.send_message(Ask(), agent("slow"), cancellation_token=token))
    await eventually(lambda: entered)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 1)
    await eventually(lambda: ended)


async def test_the_callers_task_is_as_it_was_after_a_token_cancelled_its_call(runtime: Any, ready: Any) -> None:
    entered: list[Any] = []
    await ready("slow", waiting(entered, []))
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.01, token.cancel)
    with pytest.raises(asyncio.CancelledError):
        await runtime.send_message(Ask(), agent("slow"), cancellation_token=token)
    me = asyncio.current_task()
    assert me is not None
    assert me.cancelling() == 0
    # An interruption that came too late would hit here, before that of a call which is cancelled later.
    later, ended = CancellationToken(), []
    await ready("other", waiting(entered, ended))
    call = asyncio.create_task(runtime.send_message(Ask(), agent("other"), cancellation_token=later))
    await eventually(lambda: len(entered) == 2)
    later.cancel()
    await eventually(lambda: ended)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 1)
    assert me.cancelling() == 0


async def test_a_token_cancelled_in_another_thread_takes_effect(runtime: Any, ready: Any) -> None:
    entered: list[Any] = []
    await ready("slow", waiting(entered, []))
    token = CancellationToken()
    call = asyncio.create_task(runtime.send_message(Ask(), agent("slow"), cancellation_token=token))
    await eventually(lambda: entered)
    thread = threading.Thread(target=token.cancel)
    thread.start()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 1)
    thread.join()


async def test_one_token_given_to_many_calls_cancels_them_all(runtime: Any) -> None:
    entered: list[Any] = []
    await host(runtime, "slow", waiting(entered, []))
    token = CancellationToken()
    calls = [
        asyncio.create_task(runtime.send_message(Ask(), agent("slow", str(n)), cancellation_token=token))
        for n in range(10)
    ]
    await eventually(lambda: len(entered) == 10)
    token.cancel()
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 1)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)


@pytest.mark.parametrize("how", ["inline", "queued", "gathered"])
async def test_calls_inside_a_turn_inherit_its_cancellation(runtime: Any, ready: Any, how: str) -> None:
    entered, ended = [], []
    token = CancellationToken()

    async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if how == "gathered":
            return await asyncio.gather(*(agent.call(name) for name in ("one", "two")))
        return await agent.call("one")

    for name in ("one", "two"):
        await host(runtime, name, waiting(entered, ended))
        if how != "queued":
            await runtime.get(agent(name), lazy=False)
    await ready("outer", outer)
    call = asyncio.create_task(runtime.send_message(Ask(), agent("outer"), cancellation_token=token))
    expected = 2 if how == "gathered" else 1
    await eventually(lambda: len(entered) == expected)
    token.cancel()
    await eventually(lambda: all(ctx.cancellation_token.is_cancelled() for _, ctx in entered))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 1)
    await eventually(lambda: len(ended) == expected)


async def test_cancelling_an_inner_call_leaves_the_outer_turn_alone(runtime: Any, ready: Any) -> None:
    entered: list[Any] = []

    async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        token = CancellationToken()
        asyncio.get_running_loop().call_later(0.01, token.cancel)
        try:
            other = type(agent.id)("slow", "default")
            await agent.send_message(Ask(), other, cancellation_token=token)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)  # longer than the grace
            return "went on", ctx.cancellation_token.is_cancelled()

    await ready("slow", waiting(entered, []))
    await ready("outer", outer)
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("outer")), 2) == ("went on", False)


async def test_eight_hundred_nested_calls_are_cancelled_quickly(runtime: Any) -> None:
    token, bottom = CancellationToken(), asyncio.Event()

    async def down(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.number == 0:
            bottom.set()
            await asyncio.Event().wait()
        following = type(agent.id)(agent.id.type, str(message.number))
        passed_on = ctx.cancellation_token if message.number % 2 else None
        return await agent.send_message(Ask(number=message.number - 1), following, cancellation_token=passed_on)

    await host(runtime, "level", down)
    call = asyncio.create_task(runtime.send_message(Ask(number=800), agent("level", "top"), cancellation_token=token))
    await asyncio.wait_for(bottom.wait(), 10)
    begin = time.monotonic()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 5)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
    print(f"800 nested calls were cancelled in {time.monotonic() - begin:.3f} s")
    runtime.start()


async def test_a_token_on_a_publish_cancels_serial_handlers_and_not_process_bound_ones(runtime: Any) -> None:
    entered, ended = [], []
    gate, finished = asyncio.Event(), []

    async def bound(agent: Doing, message: Note, ctx: MessageContext) -> None:
        entered.append((agent.id, ctx))
        await gate.wait()
        finished.append(agent.id)

    await host(runtime, "serial", note=waiting(entered, ended), topics=("news",))
    await host(runtime, "bound", note=bound, topics=("news",), cls=Bound)
    token = CancellationToken()
    await runtime.publish_message(Note(), TopicId("news", "d"), cancellation_token=token)
    await eventually(lambda: len(entered) == 2)
    token.cancel()
    await eventually(lambda: ended == [agent("serial", "d")])  # its grace is over, and the other's was as long
    await turns_of_the_loop()
    gate.set()
    await eventually(lambda: finished == [agent("bound", "d")])


@pytest.mark.parametrize("state", ["new agents", "busy agents"])
async def test_a_token_cancelled_while_its_publish_waits_reaches_every_subscriber(runtime: Any, state: str) -> None:
    """No subscriber may be left running for ever because another one of the same token was told first."""
    completed, token, gate = [], CancellationToken(), asyncio.Event()

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        if message.text == "keep busy":
            await gate.wait()
            return
        await asyncio.sleep(0)
        await asyncio.Event().wait()
        completed.append(agent.id)

    for name in ("one", "two", "three"):
        await host(runtime, name, note=note, topics=("news",))
    if state == "busy agents":
        await runtime.publish_message(Note(text="keep busy"), TopicId("news", "d"))
        await turns_of_the_loop()
    await runtime.publish_message(Note(), TopicId("news", "d"), cancellation_token=token)
    token.cancel()
    await turns_of_the_loop()
    gate.set()
    await asyncio.wait_for(runtime.stop_when_idle(), 2)
    runtime.start()
    assert not completed


async def test_a_cancelled_publish_is_no_unhandled_error() -> None:
    """Whoever cancels a token wants the handler to end; the runtime goes on."""
    runtime = LocalRuntime(ignore_unhandled_exceptions=False, cancel_grace=0.02)
    entered, ended = [], []
    await host(runtime, "slow", echo, waiting(entered, ended), topics=("news",))
    runtime.start()
    token = CancellationToken()
    await runtime.publish_message(Note(), TopicId("news", "default"), cancellation_token=token)
    await eventually(lambda: entered)
    token.cancel()
    await eventually(lambda: ended)
    assert await asyncio.wait_for(runtime.send_message(Ask(text="alive"), agent("slow")), 1) == "alive"
    await runtime.close()


async def test_a_withdrawn_call_leaves_nothing_behind(runtime: Any, ready: Any) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    async def busy(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        entered.set()
        await gate.wait()

    await ready("busy", busy)
    first = asyncio.create_task(runtime.send_message(Ask(), agent("busy")))
    await entered.wait()
    token = CancellationToken()
    second = asyncio.create_task(runtime.send_message(Ask(), agent("busy"), cancellation_token=token))
    await turns_of_the_loop()
    assert runtime.unprocessed_messages_count == 1
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert runtime.unprocessed_messages_count == 0
    gate.set()
    await first
    activation = runtime._catalog.types["busy"].live["default"]
    assert activation.mailbox is None
    assert activation.top is None
