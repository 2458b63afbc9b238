"""A clock that goes on when the test says so."""

from __future__ import annotations

from collections.abc import Callable


class HandClock:
    """See `stagebell.runtime.engine.clock.Clock`; `advance` makes the calls that have become due."""

    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000
        self._calls: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def call_at(self, at_ms: int, call: Callable[[], None]) -> _Alarm:
        """Call it when the clock has been advanced to this time."""
        entry = at_ms, call
        self._calls.append(entry)
        return _Alarm(lambda: self._calls.remove(entry) if entry in self._calls else None)

    @property
    def due_in(self) -> list[float]:
        """In how many seconds each call is due, the next one first."""
        return sorted((at_ms - self._now_ms) / 1000 for at_ms, _ in self._calls)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_ms += round(seconds * 1000)
        due = sorted((entry for entry in self._calls if entry[0] <= self._now_ms), key=lambda entry: entry[0])
        self._calls = [entry for entry in self._calls if entry not in due]
        for _, call in due:
            call()


class _Alarm:
    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel
