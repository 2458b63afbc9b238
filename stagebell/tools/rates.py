"""How many calls there were lately, and how long the next one has to wait."""

from __future__ import annotations

from collections import deque

from stagebell.tools.declared import RateLimit


class Window:
    """The calls of one tool in the last seconds.

    Args:
        limit: the most there may be.
    """

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        self._taken: deque[float] = deque()

    def take(self, now: float) -> float | None:
        """Take the next free place.

        Args:
            now: seconds, of any clock that only goes forward.

        Returns:
            How many seconds the call has to wait for it, 0.0 when it may go; None when that is longer than the limit
            lets it wait, and no place was taken.
        """
        while self._taken and self._taken[0] <= now - self.limit.seconds:
            self._taken.popleft()
        if len(self._taken) < self.limit.calls:
            at = now
        else:
            at = max(now, self._taken[-self.limit.calls] + self.limit.seconds)
        if at - now > self.limit.wait:
            return None
        self._taken.append(at)
        return at - now
