"""Calls given up, and turns cancelled, while their worker stops, at the next owner, or by agents without state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler

from stagebell import Publisher, agent_options, deadline
from stagebell.runtime.redis.keys import NamespaceKeys
from stagebell.testing import ManualClock, crash
from tests.runtime.redis.test_giving_up import (
    BACK,
    DIARY,
    FAR,
    Back,
    Bench,
    FarAway,
    Impatient,
    InAHurry,
    Patient,
    Waits,
)
from tests.runtime.redis.test_savepoints import Diary, Step
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
async def bench(server: Server, namespace: str) -> AsyncIterator[Bench]:
    async with Publisher(server.url, namespace=namespace) as client:
        bench = Bench(server, namespace, client)
        yield bench
        await bench.close()


async def test_a_call_that_is_given_up_before_its_agents_place_is_known(bench: Bench) -> None:
    """The turn ran before, and a nested turn has left a savepoint: what it does next comes after that."""
    Impatient.entered = asyncio.Event()
    victim = await bench.start(Impatient, Back)
    call = bench.call("outer")
    await asyncio.wait_for(Impatient.entered.wait(), 8)
    await crash(victim)
    registry = NamespaceKeys(bench.view.namespace).reg
    bench.view.client.hdel(registry, "t:back")
    bench.view.client.hincrby(registry, "v", 1)
    heir = await bench.start(InAHurry)
    await asyncio.wait_for(call, 10)
    assert await bench.lines(heir) == ["outer", "inner", "goes on"]


# -- a worker that stops while a turn goes on


@agent_options(state_type="Diary")
class Calling(Diary):
    """Calls one who is far away, until it is told to give that up."""

    gives_up: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.lines.append(message.names[0])
        call = asyncio.ensure_future(self.send_message(Step(names=["far"], fails=[]), FAR))
        giving_up = asyncio.ensure_future(self.gives_up.wait())
        await asyncio.wait((call, giving_up), return_when=asyncio.FIRST_COMPLETED)
        call.cancel()
        await asyncio.wait([call])


@pytest.mark.parametrize("cancelled", [False, True], ids=["the turn gives it up", "the turn is cancelled"])
async def test_a_call_that_is_given_up_while_the_worker_stops_ends(bench: Bench, cancelled: bool) -> None:
    Waits.entered, Waits.cancelled, Calling.gives_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
    await bench.start(Waits)
    old = await bench.start(Calling, stop_grace=20.0)
    call = bench.call("calls")
    await asyncio.wait_for(Waits.entered.wait(), 8)
    new = await bench.start(Diary)
    closing = asyncio.create_task(old.close())
    await eventually(lambda: bench.view.keys("}:hold"), 8)
    if cancelled:
        bench.wish("calls")
    else:
        Calling.gives_up.set()
    await asyncio.wait_for(Waits.cancelled.wait(), 8)
    ended = await asyncio.wait_for(asyncio.gather(call, closing, return_exceptions=True), 10)
    assert isinstance(ended[0], asyncio.CancelledError) is cancelled
    assert await bench.lines(new) == ([] if cancelled else ["calls"])


@agent_options(state_type="Diary")
class Interrupted(Diary):
    """The first time it is in the middle of its nested turn for ever."""

    entered: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.lines.append(message.names[0])
        if message.names[0] == "nested":
            if not self.entered.is_set():
                self.entered.set()
                await asyncio.Event().wait()
            self.lines.append("nested ends")
            return
        with suppress(asyncio.CancelledError):
            await self.send_message(Step(names=["nested"], fails=[]), self.id)
        self.lines.append("goes on")


async def test_a_stop_that_interrupts_a_nested_turn_leaves_nothing_of_it_with_the_turn_below(bench: Bench) -> None:
    Interrupted.entered = asyncio.Event()
    old = await bench.start(Interrupted, stop_grace=0.1)
    call = bench.call("outer")
    await asyncio.wait_for(Interrupted.entered.wait(), 8)
    await asyncio.wait_for(old.close(), 10)
    new = await bench.start(Interrupted)
    await asyncio.wait_for(call, 10)
    assert await bench.lines(new) == ["outer", "nested", "nested ends", "goes on"]


# -- at the next owner


@agent_options(state_type="Diary")
class Late(Diary):
    """Its nested turn has a deadline, which is over when the next owner reads it."""

    entered: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        name, *rest = message.names
        self.lines.append(name)
        with suppress(Exception), deadline(8):
            if rest:
                await self.send_message(Step(names=rest, fails=[]), self.id)
        self.lines.append(f"{name} ends")
        if name == "middle" and not self.entered.is_set():
            self.entered.set()
            await asyncio.Event().wait()


async def test_a_nested_message_whose_deadline_is_over_leaves_what_its_own_nested_turns_did(bench: Bench) -> None:
    Late.entered = asyncio.Event()
    victim = await bench.start(Late)
    call = bench.call("outer", "middle", "inner")
    await asyncio.wait_for(Late.entered.wait(), 8)
    await crash(victim)
    clock = ManualClock()
    clock.advance(12)
    heir = await bench.start(Late, clock=clock)
    await asyncio.wait_for(call, 10)
    assert await bench.lines(heir) == ["outer", "middle", "inner", "inner ends", "outer ends"]


@agent_options(state_type="Diary")
class LateAndFarAway(FarAway):
    """Its nested turn has a deadline."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        with deadline(30):
            await super().on_step(message, ctx)


async def test_the_calls_of_a_message_whose_deadline_is_over_end_before_it_can_take_its_place(bench: Bench) -> None:
    """What it waits for may wait for one of them."""
    Waits.entered, Waits.cancelled = asyncio.Event(), asyncio.Event()
    await bench.start(Waits)
    victim = await bench.start(LateAndFarAway)
    call = asyncio.create_task(bench.client.call(Step(names=["outer"], fails=[]), DIARY, timeout=80))
    await asyncio.wait_for(Waits.entered.wait(), 8)
    await crash(victim)
    clock = ManualClock()
    clock.advance(40)
    heir = await bench.start(Patient, clock=clock)
    await asyncio.wait_for(call, 15)
    assert await bench.lines(heir) == ["goes on"]


# -- tasks, agents without state, other agents


@agent_options(state_type="Diary")
class Leaving(Diary):
    """Leaves a task behind that calls somebody whom nobody hosts yet."""

    left: list[asyncio.Future[None]]

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.left.append(asyncio.ensure_future(self.send_message(Step(names=["far"], fails=[]), FAR)))
        await asyncio.Event().wait()


async def test_a_task_of_a_cancelled_turn_does_not_make_its_call_outside_of_it(bench: Bench) -> None:
    Leaving.left, Waits.entered, Waits.cancelled = [], asyncio.Event(), asyncio.Event()
    await bench.start(Leaving)
    call = bench.call("leaves")
    await eventually(lambda: Leaving.left, 8)
    call.cancel()
    await eventually(lambda: bench.view.backlog() == 0, 8)
    await bench.start(Waits)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(Leaving.left[0], 8)
    assert not Waits.entered.is_set()


class Forgetful(RoutedAgent):
    """Keeps no state; calls itself back by way of another, twice."""

    starts: list[str]

    def __init__(self) -> None:
        super().__init__("forgetful")

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.starts.append(message.names[0])
        if message.names[0] == "outer":
            for name in ("one", "two"):
                await self.send_message(Step(names=["back", name], fails=[]), BACK)


async def test_nested_turns_of_an_agent_without_state_are_no_ground_to_run_again(bench: Bench) -> None:
    Forgetful.starts = []
    await bench.start(Forgetful, Back)
    await asyncio.wait_for(bench.call("outer"), 8)
    assert Forgetful.starts == ["outer", "one", "two"]


class Open(RoutedAgent):
    """Keeps no state; calls itself back by way of another, twice at once, and is busy in the first of these turns."""

    gate: asyncio.Event
    starts: list[str]

    def __init__(self) -> None:
        super().__init__("open")

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.starts.append(message.names[0])
        if message.names[0] == "outer":
            steps = (Step(names=["back", f"nested-{key}"], fails=[]) for key in "ab")
            calls = map(self.send_message, steps, (AgentId("back", key) for key in "ab"))
            await asyncio.gather(*calls, return_exceptions=True)
        else:
            await self.gate.wait()


async def test_a_cancelled_message_to_an_agent_without_state_takes_no_place_first(bench: Bench) -> None:
    Open.starts, Open.gate = [], asyncio.Event()
    await bench.start(Open, Back)
    call = bench.call("outer")
    await eventually(lambda: len(Open.starts) == 2 and bench.view.backlog() == 5, 8)
    (waits,) = {"nested-a", "nested-b"} - set(Open.starts)
    bench.wish(waits)
    await eventually(lambda: bench.view.backlog() == 3, 8)  # it is gone, and so is who called it
    Open.gate.set()
    await asyncio.wait_for(call, 8)
    assert waits not in Open.starts


@agent_options(state_type="Diary")
class Busy(Diary):
    """One of them is busy, and another calls it without much patience."""

    entered: asyncio.Event
    gate: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        if message.names[0] == "busy":
            self.entered.set()
            await self.gate.wait()
        elif message.names[0] == "asks":
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self.send_message(Step(names=["asked"], fails=[]), DIARY)
            self.entered.set()
            await self.gate.wait()


async def test_a_call_that_another_agent_gives_up_ends_without_waiting_for_its_turn(bench: Bench) -> None:
    Busy.entered, Busy.gate = asyncio.Event(), asyncio.Event()
    await bench.start(Busy)
    busy = bench.call("busy")
    await asyncio.wait_for(Busy.entered.wait(), 8)
    Busy.entered.clear()
    asks = asyncio.create_task(bench.client.call(Step(names=["asks"], fails=[]), AgentId("diary", "other"), timeout=20))
    await asyncio.wait_for(Busy.entered.wait(), 8)
    await eventually(lambda: bench.view.backlog() == 2, 8)
    Busy.gate.set()
    await asyncio.wait_for(asyncio.gather(busy, asks), 8)
