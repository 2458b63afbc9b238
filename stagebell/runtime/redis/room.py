"""Sends that wait for room in full inboxes, in the order in which they were made.

A send that was refused waits in the line of each inbox it is for, and so does every later one for the same inbox. Only
one that is first in all of its lines is tried again, so none overtakes another; other inboxes are not concerned.
"""

from __future__ import annotations

import asyncio
from asyncio import Event
from bisect import insort
from collections.abc import Iterable, Iterator

_SHORTEST, _LONGEST = 0.005, 0.25  # seconds between two tries


class Place:
    """The place of one send in the lines of its inboxes."""

    __slots__ = ("_pause", "first", "inboxes", "number", "refused")

    def __init__(self, number: int, inboxes: frozenset[str]) -> None:
        self.number = number
        self.inboxes = inboxes
        self.first = Event()
        self.refused = False
        self._pause = _SHORTEST

    async def turn(self) -> None:
        """Wait until it may be tried: when it is the first, and a while after it was refused."""
        await self.first.wait()
        if self.refused:
            self.refused = False
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 1.5, _LONGEST)


class Room:
    """The lines of one process. `number` says when a send was made; lower is earlier."""

    def __init__(self) -> None:
        self.lines: dict[str, list[Place]] = {}

    def must_wait(self, number: int, inboxes: Iterable[str]) -> bool:
        """True when an earlier send waits for one of these inboxes."""
        lines = self.lines
        return bool(lines) and any(inbox in lines and lines[inbox][0].number < number for inbox in inboxes)

    def join(self, number: int, inboxes: Iterable[str]) -> Place:
        """Wait from now on."""
        place = Place(number, frozenset(inboxes))
        for inbox in place.inboxes:
            insort(self.lines.setdefault(inbox, []), place, key=lambda waiting: waiting.number)
        for other in [place, *self._seconds(place)]:
            self._look_at(other)
        return place

    def leave(self, place: Place) -> None:
        """It was taken, or given up."""
        for inbox in place.inboxes:
            line = self.lines[inbox]
            line.remove(place)
            if not line:
                del self.lines[inbox]
            else:
                self._look_at(line[0])

    def _seconds(self, place: Place) -> Iterator[Place]:
        lines = (self.lines[inbox] for inbox in place.inboxes)
        return (line[1] for line in lines if line[0] is place and len(line) > 1)

    def _look_at(self, place: Place) -> None:
        if all(self.lines[inbox][0] is place for inbox in place.inboxes):
            place.first.set()
        else:
            place.first.clear()
