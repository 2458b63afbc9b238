"""The time of day, for what is due at a moment that other processes understand too: deadlines, timers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """It will not be made."""
        ...


class Clock(Protocol):
    """Where a runtime takes the time from; replaced in tests, so that they need not wait."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def call_at(self, at_ms: int, call: Callable[[], object]) -> Alarm:
        """Call it in the event loop at this time, or at once when that is over."""
        ...


class SystemClock:
    """The clock of this machine; see `Clock`."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def call_at(self, at_ms: int, call: Callable[[], object]) -> Alarm:
        """Call it in the event loop at this time, or at once when that is over."""
        return asyncio.get_running_loop().call_later(max(0.0, (at_ms - self.now_ms()) / 1000), call)
