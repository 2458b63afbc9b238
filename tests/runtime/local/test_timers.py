"""Timers in memory, by a clock that the test moves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext

from stagebell import LocalRuntime
from stagebell.runtime.engine.timers import Plan, TimerId
from tests.support.agents import Doing, Note, agent, collect, echo, host
from tests.support.waiting import eventually, turns_of_the_loop

pytestmark = pytest.mark.runtime


class ManualAlarm:
    def __init__(self, at_ms: int, call: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0
        self.alarms: list[ManualAlarm] = []

    def now_ms(self) -> int:
        return self.now

    def call_at(self, at_ms: int, call: Callable[[], None]) -> ManualAlarm:
        alarm = ManualAlarm(at_ms, call)
        self.alarms.append(alarm)
        return alarm

    async def move(self, ms: int) -> None:
        """Let time pass at once: what was due meanwhile finds the end of it."""
        self.now += ms
        while ready := sorted((a for a in self.alarms if a.at_ms <= self.now), key=lambda alarm: alarm.at_ms):
            self.alarms.remove(ready[0])
            if not ready[0].cancelled:
                ready[0].call()
        await turns_of_the_loop(5)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def runtime(clock: ManualClock) -> Any:
    async with LocalRuntime(clock=clock) as runtime:
        yield runtime


async def test_each_period_brings_one_message(runtime: Any, clock: ManualClock) -> None:
    heard: list[str] = []
    await host(runtime, "doing", echo, collect(heard))
    await runtime.schedule(Note(text="tick"), agent("doing"), every=10.0)
    await clock.move(9_999)
    assert heard == []
    for count in (1, 2, 3):
        await clock.move(1 if count == 1 else 10_000)
        assert len(heard) == count


async def test_periods_that_were_missed_are_one(runtime: Any, clock: ManualClock) -> None:
    ids: list[str] = []

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        ids.append(ctx.message_id.partition(".")[2])

    await host(runtime, "doing", echo, note)
    await runtime.schedule(Note(), agent("doing"), every=10.0)
    await clock.move(47_000)
    assert ids == ["10000"]
    await clock.move(3_000)
    assert ids == ["10000", "50000"]


async def test_a_stop_is_made_up_for_at_the_start(runtime: Any, clock: ManualClock) -> None:
    heard: list[str] = []
    await host(runtime, "doing", echo, collect(heard))
    await runtime.schedule(Note(text="second"), agent("doing"), delay=2.0)
    await runtime.schedule(Note(text="first"), agent("doing"), delay=1.0)
    gone = await runtime.schedule(Note(text="gone"), agent("doing"), delay=1.5)
    await runtime.stop()
    await clock.move(10_000)
    assert heard == []
    assert await gone.cancel()
    runtime.start()
    await eventually(lambda: len(heard) == 2)
    assert heard == ["first", "second"]


async def test_close_forgets_them(clock: ManualClock) -> None:
    runtime = LocalRuntime(clock=clock)
    await host(runtime, "doing", echo)
    await runtime.schedule(Note(), agent("doing"), delay=1.0)
    await runtime.close()
    assert all(alarm.cancelled for alarm in clock.alarms)


async def test_what_is_due_before_the_first_start_waits_for_it(clock: ManualClock) -> None:
    heard: list[str] = []
    runtime = LocalRuntime(clock=clock)
    await host(runtime, "doing", echo, collect(heard))
    await runtime.schedule(Note(text="early"), agent("doing"), delay=1.0)
    await clock.move(2_000)
    async with runtime:
        await eventually(lambda: heard == ["early"])


async def test_nobody_hears_of_an_error_but_the_log(
    runtime: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        raise ValueError("no good")

    await host(runtime, "doing", echo, note)
    await runtime.schedule(Note(), agent("doing"), delay=1.0)
    await runtime.schedule(Note(), agent("nobody"), delay=1.0)
    with caplog.at_level(logging.ERROR, "stagebell"):
        await clock.move(1_000)
    assert "doing/default failed to handle a message that nobody waits for" in caplog.text
    assert "agent type 'nobody' is not registered" in caplog.text


@pytest.mark.parametrize("to", [AgentId("a", "k:/ ey"), AgentId("a", "topic")])
def test_an_id_leads_to_the_recipient(to: AgentId) -> None:
    for name in (None, "a name"):
        id = TimerId.make(to, name)
        assert TimerId.parse(str(id)) == id


def test_the_next_time_is_always_ahead() -> None:
    plan = Plan.of(None, 10.0, None)
    assert [plan.next_due(100, now) for now in (0, 100, 10_099, 10_100, 99_999)] == [
        10_100,
        10_100,
        10_100,
        20_100,
        100_100,
    ]
