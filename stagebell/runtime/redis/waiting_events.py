"""Events that wait in their stream, since an inbox that one of them is for is full.

An event goes to all of its recipients or to none, so it waits for each of them; and what comes behind it for one of the
same inboxes waits too, or would overtake it. Events for other inboxes pass.
"""

from __future__ import annotations

from collections.abc import Collection

_SHORTEST, _LONGEST = 0.01, 0.25  # seconds until they are tried again


class WaitingEvents:
    """Those that one reader of the stream has passed over; no more than `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ids: set[str] = set()
        self._inboxes: set[str] = set()
        self._tried: set[str] = set()
        self._pause = _SHORTEST

    def __bool__(self) -> bool:
        return bool(self._ids)

    @property
    def full(self) -> bool:
        """True when so many wait that nothing behind them is looked at any more."""
        return len(self._ids) >= self._most

    def has_to_wait(self, inboxes: Collection[str]) -> bool:
        """True when an event for one of these inboxes waits."""
        return bool(self._ids) and not self._inboxes.isdisjoint(inboxes)

    def add(self, id: str, inboxes: Collection[str]) -> None:
        """This one waits."""
        self._ids.add(id)
        self._inboxes.update(inboxes)

    def try_again(self) -> None:
        """The stream is read from its beginning again."""
        self._tried, self._ids = self._ids, set()
        self._inboxes.clear()

    def pause(self) -> float:
        """Seconds until the next try: few while there is room now and then, more when nothing moves."""
        moves = not self._tried <= self._ids
        self._pause = _SHORTEST if moves else min(2 * self._pause, _LONGEST)
        return self._pause
