"""Calls stand in line: one starts when none that came before it, and goes on or waits, conflicts with it."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from stagebell.tools.conflicts import Access, may_start


class _Place:
    """One call in line; `turn` is there while it waits."""

    __slots__ = ("access", "turn")

    def __init__(self, access: Access) -> None:
        self.access = access
        self.turn: Future[None] | None = None


class Line:
    """The calls that wait or go on, in the order in which they came."""

    def __init__(self) -> None:
        self._places: list[_Place] = []

    @asynccontextmanager
    async def place(self, access: Access) -> AsyncGenerator[None, None]:
        """Wait until it is this call's turn; the place is taken at once, and free when the block is left."""
        place = _Place(access)
        earlier = [other.access for other in self._places]
        self._places.append(place)
        try:
            if not may_start(access, earlier):
                place.turn = asyncio.get_running_loop().create_future()
                await place.turn
            yield
        finally:
            self._places.remove(place)
            self._call_next()

    def _call_next(self) -> None:
        earlier: list[Access] = []
        for place in self._places:
            if place.turn is not None and not place.turn.done() and may_start(place.access, earlier):
                place.turn.set_result(None)
            earlier.append(place.access)
