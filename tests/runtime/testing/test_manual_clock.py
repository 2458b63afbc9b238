"""Time passes when the test says so."""

from __future__ import annotations

import asyncio

import pytest
from autogen_core import TopicId

from stagebell import LocalRuntime
from stagebell.testing import ManualClock
from tests.support.agents import Note, collect, host
from tests.support.waiting import eventually, turns_of_the_loop

pytestmark = pytest.mark.runtime


def test_it_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(start=1000)
    assert clock.now_ms() == clock.now_ms() == 1_000_000
    clock.advance(1.5)
    assert clock.now_ms() == 1_001_500


def test_calls_are_made_in_the_order_of_their_times_each_at_its_own() -> None:
    clock, made = ManualClock(start=0), []

    def made_at(name: str) -> None:
        made.append((name, clock.now_ms()))

    clock.call_at(3000, lambda: made_at("third"))
    clock.call_at(1000, lambda: made_at("first"))
    clock.call_at(1000, lambda: made_at("second"))
    clock.call_at(9000, lambda: made_at("never"))
    assert clock.due_in == [1, 1, 3, 9]
    clock.advance(5)
    assert made == [("first", 1000), ("second", 1000), ("third", 3000)]
    assert clock.due_in == [4]


def test_a_call_may_set_the_next_one() -> None:
    clock, made = ManualClock(start=0), []

    def every_second() -> None:
        made.append(clock.now_ms())
        clock.call_at(clock.now_ms() + 1000, every_second)

    clock.call_at(1000, every_second)
    clock.advance(3)
    assert made == [1000, 2000, 3000]


def test_a_cancelled_call_is_not_made() -> None:
    clock, made = ManualClock(start=0), []
    alarm = clock.call_at(1000, lambda: made.append("cancelled"))
    clock.call_at(1000, lambda: made.append("kept"))
    alarm.cancel()
    assert clock.due_in == [1]
    clock.advance(1)
    assert made == ["kept"]


async def test_what_is_over_is_called_in_the_next_turn_of_the_loop() -> None:
    clock, made = ManualClock(start=10), []
    clock.call_at(5000, lambda: made.append("late"))
    assert not made
    await asyncio.sleep(0)
    assert made == ["late"]


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="back"):
        ManualClock().advance(-1)


async def test_a_timer_of_a_local_runtime_comes_when_the_clock_is_advanced() -> None:
    clock, seen = ManualClock(), list[str]()
    async with LocalRuntime(clock=clock) as runtime:
        await host(runtime, "reader", note=collect(seen), topics=("news",))
        await runtime.schedule(Note(text="an hour later"), TopicId("news", "x"), delay=3600)
        clock.advance(3599)
        await turns_of_the_loop()
        assert not seen
        clock.advance(1)
        await eventually(lambda: seen == ["an hour later"])
