"""Calls stand in line: one starts when none that came before it, and goes on or waits, conflicts with it.

A call that comes out of one that goes on (its tool calls an agent, which calls a tool here) is let in: whoever waits
stands behind the first one, and that waits for it. It waits only for those that go on and have nothing to do with it.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from stagebell.runtime.engine.turn import Turn, current_turn
from stagebell.tools.conflicts import Access, may_start


class _Place:
    """One call in line.

    Attributes:
        access: what it touches.
        turn: in which it is handled.
        behind: the places that it has to wait for when they conflict with it.
        go: set when it may start; None once it was never made to wait.
    """

    __slots__ = ("access", "behind", "go", "turn")

    def __init__(self, access: Access, turn: Turn | None, behind: list[_Place]) -> None:
        self.access = access
        self.turn = turn
        self.behind = behind
        self.go: Future[None] | None = None

    @property
    def waits(self) -> bool:
        """True until it may start."""
        return self.go is not None and not self.go.done()

    def may_start(self) -> bool:
        """Whether nothing that it has to wait for conflicts with it."""
        return may_start(self.access, (other.access for other in self.behind))


class Line:
    """The calls that wait or go on, in the order in which they came."""

    def __init__(self) -> None:
        self._places: list[_Place] = []

    @asynccontextmanager
    async def place(self, access: Access) -> AsyncGenerator[None, None]:
        """Wait until it is this call's turn; the place is taken at once, and free when the block is left."""
        turn = current_turn.get()
        place = _Place(access, turn, _ahead_of(turn, self._places) if self._places else [])
        self._places.append(place)
        try:
            if not place.may_start():
                place.go = asyncio.get_running_loop().create_future()
                await place.go
            yield
        finally:
            self._leave(place)

    def _leave(self, place: _Place) -> None:
        self._places.remove(place)
        for other in self._places:
            if place in other.behind:
                other.behind.remove(place)
                if other.waits and other.may_start():
                    assert other.go is not None
                    other.go.set_result(None)


def _ahead_of(turn: Turn | None, places: list[_Place]) -> list[_Place]:
    """Those whom a call has to wait for, of the ones that are there when it comes."""
    unrelated = [place for place in places if not _comes_out_of(turn, place.turn)]
    if len(unrelated) == len(places):
        return unrelated
    return [place for place in unrelated if not place.waits]


def _comes_out_of(turn: Turn | None, other: Turn | None) -> bool:
    """True when `other` waits for what is done in `turn`, over any number of calls."""
    if turn is None or other is None:
        return False
    return turn.descends_from(other) or (turn.receipt is not None and turn.receipt.admitted_by(other))
