"""Commits that publish, in the order in which their turns ended, also when some have to be sent again.

Such a commit carries the version of the registry by which its recipients were found. When the registry has changed, the
server refuses it; it is looked up and sent again. What holds at all times (`lane` says the same of sends)
    - Commits that wait leave in the order in which they were first ready to leave, and none leaves before them.
    - No commit leaves by a newer version of the registry while one that left by an older version may still be refused:
      it would overtake it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.under_way import UnderWay


class OrderedCommit(Protocol):
    """The commit of one turn."""

    number: int
    abandoned: bool

    def find_recipients(self) -> bool:
        """Look up who gets what the turn published; False when a place is not known."""
        ...

    async def find_places(self) -> None:
        """Make such places known."""
        ...

    def go(self) -> None:
        """Send the commit."""
        ...

    def cannot_go(self, error: BaseException | None) -> None:
        """Its recipients cannot be found (`error`), or it was abandoned while it waited."""
        ...


class CommitOrder:
    """See the top of this file."""

    def __init__(self, directory: Directory, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._directory = directory
        self._spawn = spawn
        self._waiting: list[OrderedCommit] = []
        self._under_way = UnderWay()
        self._number = 0
        self._refused = -1
        self._running = False

    @property
    def somebody_waits(self) -> bool:
        """True while commits wait here: one of the same agent must not pass them."""
        return bool(self._waiting)

    def next_number(self) -> int:
        """The place of a commit among all commits."""
        self._number += 1
        return self._number

    def may_leave(self) -> bool:
        """True when a commit that leaves now by the version known here overtakes nobody."""
        return not self._waiting and not self._may_overtake()

    def left(self) -> int:
        """A commit that publishes has left; returns the version of the registry that it carries."""
        version = self._directory.version
        self._under_way.left(version)
        return version

    def answered(self, version: int) -> None:
        """It was answered."""
        self._under_way.answered(version)

    def wait(self, commit: OrderedCommit, *, refused: int | None = None) -> None:
        """The commit leaves when it may; `refused` is the version by which it was sent in vain."""
        if refused is not None:
            self._refused = refused
        insort(self._waiting, commit, key=lambda waiting: waiting.number)
        if not self._running:
            self._running = True
            self._spawn(self._let_go())

    def _may_overtake(self) -> bool:
        return self._under_way.may_be_overtaken(self._directory.version)

    async def _let_go(self) -> None:
        try:
            while self._waiting:
                first = self._waiting[0]
                try:
                    await self._next(first)
                except Exception as error:
                    self._waiting.remove(first)
                    first.cannot_go(error)
        finally:
            self._running = False

    async def _next(self, first: OrderedCommit) -> None:
        """One step towards the moment at which the first may leave."""
        if first.abandoned:
            self._waiting.remove(first)
            first.cannot_go(None)
        elif self._may_overtake():
            await self._under_way.next_answer()
        elif self._refused == self._directory.version:
            self._refused = -1
            await self._directory.refresh()
        elif not first.find_recipients():
            await first.find_places()
        else:
            self._waiting.remove(first)
            first.go()
