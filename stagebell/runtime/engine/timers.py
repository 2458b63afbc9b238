"""Delayed messages and reminders: what users give and get, and the timers that are kept in memory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from uuid import uuid4

from autogen_core import AgentId, TopicId

from stagebell.runtime.engine.addressed import require_address
from stagebell.runtime.engine.clock import Alarm, Clock

if TYPE_CHECKING:
    from stagebell.runtime.engine.ports import Timers

_LONGEST: Final = 100 * 366 * 86_400.0
_ID: Final = re.compile(r"([0-9a-f]{24}):([at]):(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Timer:
    """A message that comes later, once or again and again; made by the `schedule` of a runtime.

    Attributes:
        id: text that leads to the timer from any process, see `cancel_timer` of a runtime.
        due: when it comes next, as far as was known when the timer was made (UTC).
    """

    id: str
    due: datetime
    _timers: Timers = field(repr=False, compare=False)

    async def cancel(self) -> bool:
        """Let it come no more; inside a turn, with the turn's commit.

        Returns:
            True when it was still to come; False when it was over, or cancelled before.
        """
        return await self._timers.cancel_timer(self.id)


class Plan(NamedTuple):
    """When a timer is due, in milliseconds: `delay_ms` from now or at `at_ms`, then every `every_ms` (0: once)."""

    delay_ms: int
    at_ms: int | None
    every_ms: int

    @classmethod
    def of(cls, delay: float | None, every: float | None, at: datetime | None) -> Self:
        """The plan of these arguments of `schedule`; times in seconds.

        Raises:
            ValueError: they contradict each other, or are no times.
        """
        if delay is None and every is None and at is None:
            raise ValueError("schedule needs to know when: give delay, every or at")
        if delay is not None and at is not None:
            raise ValueError("schedule takes delay or at, not both")
        if at is not None and at.tzinfo is None:
            raise ValueError(f"at must say its time zone, {at} does not: use datetime.now(UTC) + …")
        if delay is not None and not 0 <= delay <= _LONGEST:
            raise ValueError(f"delay must be 0 to {_LONGEST:.0f} seconds, got {delay!r}")
        if every is not None and not 0.001 <= every <= _LONGEST:
            raise ValueError(f"every must be 0.001 to {_LONGEST:.0f} seconds, got {every!r}")
        first = delay if delay is not None else every or 0.0
        at_ms = None if at is None else max(0, math.ceil(at.timestamp() * 1000))
        return cls(math.ceil(first * 1000), at_ms, 0 if every is None else round(every * 1000))

    def first_due(self, now_ms: int) -> int:
        """When it is due for the first time."""
        return now_ms + self.delay_ms if self.at_ms is None else self.at_ms

    def next_due(self, due_ms: int, now_ms: int) -> int:
        """When it is due after `due_ms`: times that are over by now are left out."""
        return due_ms + self.every_ms * (max(0, now_ms - due_ms) // self.every_ms + 1)


NOW: Final = Plan(0, None, 0)
"""At once, and once: what is scheduled so for an agent, without a name, is told to it and waits for no timer."""


class TimerId(NamedTuple):
    """What a timer's id says: which one, and for whom."""

    key: str
    to: AgentId | TopicId

    @classmethod
    def make(cls, to: AgentId | TopicId, name: str | None) -> Self:
        """A new one; the same for the same recipient and name. Raises WrongType when `to` is no address."""
        require_address(to)
        if name is None:
            return cls(uuid4().hex[:24], to)
        return cls(blake2b(f"{name}\0{_kind(to)}\0{to}".encode(), digest_size=12).hexdigest(), to)

    @classmethod
    def parse(cls, text: str) -> Self:
        """What is written in an id. Raises ValueError when it is none."""
        found = _ID.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r:.80} is no id of a timer")
        return cls(found[1], AgentId.from_str(found[3]) if found[2] == "a" else TopicId.from_str(found[3]))

    def __str__(self) -> str:
        return f"{self.key}:{_kind(self.to)}:{self.to}"


def _kind(to: AgentId | TopicId) -> str:
    return "a" if isinstance(to, AgentId) else "t"


def as_time(ms: int) -> datetime:
    """Milliseconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class Scheduled(NamedTuple):
    """A message that waits for its time in memory."""

    id: TimerId
    plan: Plan
    message: Any
    sender: AgentId | None


@dataclass(slots=True)
class _Set:
    scheduled: Scheduled
    due_ms: int
    alarm: Alarm


class MemoryTimers:
    """The timers of one process. While they are paused none is due; what was missed comes once, at the end of that.

    Args:
        clock: the time.
        deliver: takes what is due, with its message id.
    """

    def __init__(self, clock: Clock, deliver: Callable[[Scheduled, str], None]) -> None:
        self._clock = clock
        self._deliver = deliver
        self._set: dict[str, _Set] = {}
        self._paused = False
        self._missed: dict[str, None] = {}

    def set(self, scheduled: Scheduled) -> int:
        """Set a timer, or replace the one of this id; returns when it is due."""
        self.cancel(scheduled.id)
        due_ms = scheduled.plan.first_due(self._clock.now_ms())
        self._arm(scheduled, due_ms)
        return due_ms

    def cancel(self, id: TimerId) -> bool:
        """Let it come no more; False when there is none."""
        self._missed.pop(id.key, None)
        known = self._set.pop(id.key, None)
        if known is None:
            return False
        known.alarm.cancel()
        return True

    def pause(self) -> None:
        """Deliver nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Deliver what was missed, in order, and go on."""
        self._paused = False
        missed, self._missed = self._missed, {}
        for key in missed:
            self._fire(key)

    def close(self) -> None:
        """Forget them all."""
        for known in self._set.values():
            known.alarm.cancel()
        self._set.clear()
        self._missed.clear()

    def _arm(self, scheduled: Scheduled, due_ms: int) -> None:
        key = scheduled.id.key
        self._set[key] = _Set(scheduled, due_ms, self._clock.call_at(due_ms, lambda: self._fire(key)))

    def _fire(self, key: str) -> None:
        if self._paused:
            self._missed[key] = None
            return
        known = self._set.pop(key)
        scheduled = known.scheduled
        if scheduled.plan.every_ms:
            self._arm(scheduled, scheduled.plan.next_due(known.due_ms, self._clock.now_ms()))
        # In no context of whoever has set it: the deadline that holds there, say, does not hold for what comes later.
        Context().run(self._deliver, scheduled, f"{key}.{known.due_ms}")
