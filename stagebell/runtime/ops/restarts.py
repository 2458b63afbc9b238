"""When a child that has died is started again; a pure decision."""

from __future__ import annotations

STEADY_SECONDS = 10.0
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0


def next_pause(lived: float, last_pause: float) -> float:
    """Seconds to wait: none for a child that had lived for a while, ever longer for one that dies at once.

    Args:
        lived: seconds from the child's start to its end.
        last_pause: what this function said of the child before.
    """
    if lived >= STEADY_SECONDS:
        return 0.0
    return min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * last_pause))
