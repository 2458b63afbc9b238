"""A clock that goes on when the test says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from stagebell.runtime.engine.clock import Alarm


class ManualClock:
    """The time of day for a runtime under test: it stands still until `advance`.

        clock = ManualClock()
        runtime = LocalRuntime(clock=clock)
        ...
        clock.advance(3600)  # whatever was due within the hour is called now

    It governs what a runtime does at a time of day: retries, deadlines, the timers of `LocalRuntime`. It does not
    move the server's clock (leases, expiry of keys, timers over a server), nor what your own code sleeps.

    Args:
        start: seconds since the epoch; without it, the time of this machine when the clock is made. A server compares
            times of day with its own clock, so start elsewhere only in one process.
    """

    def __init__(self, start: float | None = None) -> None:
        self._now_ms = round((time.time() if start is None else start) * 1000)
        self._calls: list[tuple[int, int, _Due]] = []
        self._numbers = count()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call it when the clock has been advanced to this time; when that is over, in the loop's next turn."""
        if at_ms <= self._now_ms:
            return asyncio.get_running_loop().call_soon(call)
        due = _Due(call)
        heappush(self._calls, (at_ms, next(self._numbers), due))
        return due

    @property
    def due_in(self) -> list[float]:
        """In how many seconds each call is due, the next one first."""
        return [(at_ms - self._now_ms) / 1000 for at_ms, _, due in sorted(self._calls) if not due.cancelled]

    def advance(self, seconds: float) -> None:
        """Let time pass: what becomes due is called before this returns, each at its own time, in order.

        What those calls set going (turns, messages to a server) goes on when the test awaits something.

        Args:
            seconds: how far; 0 or more.

        Raises:
            ValueError: time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"advance({seconds:g}): time does not go back")
        end = self._now_ms + round(seconds * 1000)
        while self._calls and self._calls[0][0] <= end:
            at_ms, _, due = heappop(self._calls)
            if not due.cancelled:
                self._now_ms = at_ms
                due.call()
        self._now_ms = end


class _Due:
    """A call that waits for its time."""

    __slots__ = ("call", "cancelled")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
