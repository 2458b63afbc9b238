"""The pump: fair, idle when nothing is left, stopped in order, and never silent about what goes wrong."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import textwrap
import time
import tracemalloc
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription

from stagebell import LocalRuntime
from stagebell.errors import RuntimeNotRunning
from tests.support.agents import Ask, Doing, Interleaved, Note, agent, collect, echo, host
from tests.support.waiting import eventually, turns_of_the_loop

pytestmark = pytest.mark.runtime


async def test_a_flood_of_publishes_does_not_starve_a_timer(runtime: Any) -> None:
    seen: list[str] = []

    async def again(agent: Doing, message: Note, ctx: MessageContext) -> None:
        if not fired.is_set():
            await agent.publish_message(Note(), TopicId("pong" if agent.id.type == "ping" else "ping", "d"))
        seen.append(agent.id.type)

    fired = asyncio.Event()
    await host(runtime, "ping", note=again, topics=("ping",))
    await host(runtime, "pong", note=again, topics=("pong",))
    for _ in range(200):
        await runtime.publish_message(Note(), TopicId("ping", "d"))
    asyncio.get_running_loop().call_later(0.01, fired.set)
    await asyncio.wait_for(fired.wait(), 2)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
    runtime.start()


async def test_an_idle_agent_has_no_queue_no_task_and_no_open_turn(runtime: Any) -> None:
    async def slow(agent: Doing, message: Any, ctx: MessageContext) -> None:
        await asyncio.sleep(0)

    await host(runtime, "worker", slow, slow, topics=("news",))
    before = len(asyncio.all_tasks())
    for _ in range(5):
        await runtime.publish_message(Note(), TopicId("news", "default"))
    await asyncio.gather(*(runtime.send_message(Ask(), agent("worker")) for _ in range(5)))
    await turns_of_the_loop()
    activation = runtime._catalog.types["worker"].live["default"]
    assert activation.mailbox is None
    assert activation.top is None
    assert activation.making is None
    assert not runtime._dispatcher.open
    assert runtime.unprocessed_messages_count == 0
    assert len(asyncio.all_tasks()) == before


async def test_an_idle_agent_takes_at_most_800_bytes(runtime: Any) -> None:
    count = 20_000
    made: list[Doing] = []

    def make() -> Doing:  # one object for all of them, so that only the runtime's own share is seen
        if not made:
            made.append(Doing())
        return made[0]

    await Doing.register(runtime, "tiny", make)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            await runtime.send_message(Ask(), AgentId("tiny", str(number)))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{taken / count:.0f} bytes an idle agent")
    assert taken / count <= 800


async def test_stop_when_idle_returns_at_once_when_nothing_is_to_do(runtime: Any) -> None:
    await asyncio.wait_for(runtime.stop_when_idle(), 0.5)
    runtime.start()


async def test_stop_gives_waiting_calls_their_error_and_discards_publishes(runtime: Any, ready: Any) -> None:
    gate, seen = asyncio.Event(), []

    async def busy(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        await gate.wait()
        return "ended"

    await host(runtime, "busy", busy, collect(seen), topics=("news",))
    first = asyncio.create_task(runtime.send_message(Ask(), agent("busy")))
    second = asyncio.create_task(runtime.send_message(Ask(), agent("busy")))
    await turns_of_the_loop()
    await runtime.publish_message(Note(), TopicId("news", "default"))
    stopping = asyncio.create_task(runtime.stop())
    await turns_of_the_loop()
    with pytest.raises(RuntimeNotRunning):
        await asyncio.wait_for(second, 1)
    gate.set()
    assert await asyncio.wait_for(first, 1) == "ended"
    await asyncio.wait_for(stopping, 1)
    assert runtime.unprocessed_messages_count == 0
    assert not seen
    runtime.start()


@pytest.mark.parametrize("agent_is", ["new", "in memory"])
async def test_stop_cancels_what_does_not_end_within_its_grace(runtime: Any, agent_is: str) -> None:
    async def stuck(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await asyncio.Event().wait()

    await host(runtime, "stuck", stuck)
    await runtime.get(agent("stuck"), lazy=agent_is == "new")
    call = asyncio.create_task(runtime.send_message(Ask(), agent("stuck")))
    await turns_of_the_loop()
    await asyncio.wait_for(runtime.stop(), 2)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 1)
    assert not runtime._dispatcher.open
    runtime.start()


async def test_stop_from_inside_a_call_of_a_handler_does_not_wait_for_itself() -> None:
    """X awaits Y, and Y stops the runtime: neither X nor Y can end before stop returns."""
    runtime = LocalRuntime(stop_grace=30.0, cancel_grace=30.0)
    runtime.start()
    stopped = asyncio.Event()

    async def x(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await agent.call("y")

    async def y(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await asyncio.sleep(0)
        await agent.runtime.stop()
        stopped.set()

    await host(runtime, "x", note=x, topics=("begin",))
    await host(runtime, "y", y)
    await runtime.publish_message(Note(), TopicId("begin", "default"))
    await asyncio.wait_for(stopped.wait(), 2)


async def test_stop_when_ends_when_its_condition_is_true(runtime: Any) -> None:
    seen: list[str] = []
    await host(runtime, "reader", note=collect(seen), topics=("news",))
    stopping = asyncio.create_task(runtime.stop_when(lambda: bool(seen), check_period=0.005))
    await turns_of_the_loop()
    assert not stopping.done()
    await runtime.publish_message(Note(text="x"), TopicId("news", "d"))
    await asyncio.wait_for(stopping, 1)
    runtime.start()


async def test_messages_can_be_stepped_through_by_hand() -> None:
    runtime = LocalRuntime()
    seen: list[str] = []
    await host(runtime, "reader", echo, collect(seen), topics=("news",))
    for text in ("1", "2"):
        await runtime.publish_message(Note(text=text), TopicId("news", "default"))
    call = asyncio.create_task(runtime.send_message(Ask(text="reply"), agent("reader")))
    await turns_of_the_loop()
    assert (runtime.unprocessed_messages_count, seen) == (3, [])
    await runtime.process_next()
    assert (runtime.unprocessed_messages_count, seen) == (2, ["1"])
    await runtime.process_next()
    assert (runtime.unprocessed_messages_count, seen) == (1, ["1", "2"])
    assert not call.done()
    await runtime.process_next()
    assert await asyncio.wait_for(call, 1) == "reply"
    waiting = asyncio.create_task(runtime.process_next())
    await turns_of_the_loop()
    assert not waiting.done()
    await runtime.publish_message(Note(text="3"), TopicId("news", "default"))
    await asyncio.wait_for(waiting, 1)
    assert seen == ["1", "2", "3"]


async def test_a_turn_that_waits_for_what_never_comes_is_reported_once_with_its_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = LocalRuntime(warn_after=0.02, stop_grace=0.0, cancel_grace=0.02)

    async def waits_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    async def stuck(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await waits_for_nobody()

    await host(runtime, "stuck", note=stuck, topics=("news",))
    runtime.start()
    with caplog.at_level(logging.WARNING, "stagebell"):
        await runtime.publish_message(Note(), TopicId("news", "d"))
        await eventually(lambda: "stuck/d" in caplog.text)
        for key in "efg":  # each is reported one `warn_after` later than the one before it
            await runtime.publish_message(Note(), TopicId("news", key))
            await eventually(lambda key=key: f"stuck/{key}" in caplog.text)
    warnings = [record.getMessage() for record in caplog.records if record.name == "stagebell"]
    assert len(warnings) == 4
    assert all("waits_for_nobody" in warning for warning in warnings)
    await runtime.close()


async def test_a_turn_that_waits_for_a_call_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()
    runtime = LocalRuntime(warn_after=0.02)

    async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("inner")

    async def inner(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await gate.wait()

    await host(runtime, "outer", outer)
    await host(runtime, "inner", inner)
    runtime.start()
    call = asyncio.create_task(runtime.send_message(Ask(), agent("outer")))
    await eventually(lambda: "inner/default" in caplog.text)
    assert "turn of outer/default" not in caplog.text
    gate.set()
    await call
    await runtime.close()


async def test_a_waiter_that_gives_up_does_not_harm_the_making_of_an_agent(runtime: Any) -> None:
    """Two wait for the same agent while it is made; one of them is cancelled, the other must not notice."""
    gate, making = asyncio.Event(), asyncio.Event()

    async def make() -> Doing:
        making.set()
        await gate.wait()
        return Doing(echo)

    await Doing.register(runtime, "slow", make)
    maker = asyncio.create_task(runtime.get("slow", lazy=False))
    await making.wait()
    hasty, patient = (asyncio.create_task(runtime.get("slow", lazy=False)) for _ in range(2))
    await turns_of_the_loop()
    hasty.cancel()
    await turns_of_the_loop()
    gate.set()
    outcomes = await asyncio.wait_for(asyncio.gather(maker, patient, return_exceptions=True), 1)
    assert outcomes == [agent("slow"), agent("slow")]


async def test_an_agent_is_made_once_however_many_ask_for_it_at_the_same_time(runtime: Any) -> None:
    made: list[Doing] = []

    async def make() -> Doing:
        await asyncio.sleep(0)
        made.append(Interleaved(echo))
        return made[-1]

    await Interleaved.register(runtime, "one", make)
    await asyncio.gather(*(runtime.send_message(Ask(), agent("one")) for _ in range(10)))
    assert len(made) == 1


async def test_a_subscription_to_an_unknown_type_is_reported_and_the_others_are_reached(
    runtime: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    await runtime.add_subscription(TypeSubscription("news", "nobody"))
    await host(runtime, "reader", note=collect(seen), topics=("news",))
    await runtime.publish_message(Note(text="x"), TopicId("news", "d"))
    await eventually(lambda: seen == ["x"])
    assert "nobody" in caplog.text


async def test_two_hundred_serial_agents_keep_their_order_under_load(runtime: Any) -> None:
    seen: dict[str, list[int]] = {}

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        if message.number % 7 == 0:
            await asyncio.sleep(0)
        seen.setdefault(agent.id.key, []).append(message.number)

    await host(runtime, "log", note=note, topics=("log",))
    begin = time.monotonic()
    for number in range(20):
        for key in range(200):
            await runtime.publish_message(Note(number=number), TopicId("log", str(key)))
    await runtime.stop_when_idle()
    runtime.start()
    assert len(seen) == 200
    assert all(numbers == list(range(20)) for numbers in seen.values())
    assert time.monotonic() - begin < 10


SHUT_DOWN = """
    import asyncio, sys
    from autogen_core import AgentId, TopicId
    from stagebell import LocalRuntime
    from tests.support.agents import Ask, Doing, Note, host

    async def wait(agent, message, ctx):
        await asyncio.Event().wait()

    async def main():
        runtime = LocalRuntime()
        await host(runtime, "slow", wait, wait, topics=("news",))
        await host(runtime, "other", wait, wait)
        runtime.start()
        await runtime.get(AgentId("other", "default"), lazy=False)
        for number in range(WAITING):
            await runtime.publish_message(Note(), TopicId("news", "default"))
        agents = [AgentId(name, "default") for name in ("slow", "other")]
        calls = [asyncio.create_task(runtime.send_message(Ask(), agent)) for agent in agents]
        for _ in range(10):
            await asyncio.sleep(0)
        main.calls = calls

    asyncio.run(main())
"""


@pytest.mark.parametrize("waiting", [0, 1, 3])
def test_a_loop_that_ends_with_open_turns_makes_no_noise(waiting: int) -> None:
    """No "never retrieved", no "was destroyed but it is pending", no endless shutdown."""
    source = textwrap.dedent(SHUT_DOWN).replace("WAITING", str(waiting))
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", source],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for noise in ("never retrieved", "destroyed but it is pending", "never awaited", "Exception ignored"):
        assert noise not in ended.stderr, ended.stderr[-3000:]
