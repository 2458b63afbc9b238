"""Messages of one partition that are to be ended before their time: cancelled, or beyond their caller's deadline.

The side that asked leaves an entry in `ctl`, beside the inbox, and rings the owner's bell.

What holds at all times
    - An entry of `ctl` stays until its message is consumed, by whatever turn: whoever owns the partition next reads
      `ctl` before it runs anything.
    - A message that waits is settled without running; one that runs is cancelled, and what it did is discarded.
    - What ends a message names the entry that asks for it: should the server have lost that, nothing ends, and all is
      read again.
    - A message that was not read yet is remembered until it is, or the inbox does not hold it any more. One that was
      read, and is not in memory any more, was consumed: the entry is moot. (Not while the partition is drained: then
      messages are let go unconsumed; and not those that are held back in the inbox.)
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from stagebell.runtime.redis.results import EndWanted, read_ends

if TYPE_CHECKING:
    from stagebell.runtime.redis.link import Link
    from stagebell.runtime.redis.partition import Partition

logger = logging.getLogger("stagebell")

_PAGE = 1000


class Endable(Protocol):
    """A message in memory."""

    turn_id: str

    def end_early(self, why: str, wish: str = "") -> None:
        """End it, by that reason and that entry of `ctl`."""
        ...


class Ends:
    """See the top of this file."""

    def __init__(self, link: Link, partition: Partition) -> None:
        self._link = link
        self._partition = partition
        self.wanted: dict[str, list[EndWanted]] = {}  # by the message's turn id
        self._known: set[str] = set()

    async def look(self) -> None:
        """Read all of `ctl`: what a lost bell did not tell.

        Raises:
            ServerUnavailable: there is no connection at this moment.
        """
        start = "-"
        while start:
            ctl = self._partition.keys.ctl
            start = self._hear_page(read_ends(await self._link.ask("XRANGE", ctl, start, "+", "COUNT", _PAGE)))
        await self._forget_consumed()

    async def _forget_consumed(self) -> None:
        """A former owner may have consumed a message, and not have told `ctl`."""
        inbox, pending = self._partition.keys.inbox, self._partition.pending
        unread = [each for wanted in self.wanted.values() for each in wanted if each.entry_id not in pending]
        if unread:
            entries = [(wanted.entry_id, wanted.turn_id) for wanted in unread]
            absent = await self._link.submit(lambda scripts: scripts.absent(inbox, entries))
            for wanted in unread:
                if wanted.entry_id.encode() in absent:
                    self._forget(wanted)

    def start_over(self) -> None:
        """Forget everything, and read `ctl` anew, before anything else is read: the server may have lost some of it."""
        self.wanted.clear()
        self._known.clear()
        self._link.run(lambda scripts: scripts.ends(self._partition.keys, "-", _PAGE), self._heard_anew)

    def _heard_anew(self, page: Sequence[EndWanted] | BaseException) -> None:
        if isinstance(page, BaseException):
            logger.error("%s cannot be read now: %s", self._partition.keys.ctl, page)  # `look` will
        else:
            self._hear_page(page)

    async def take_over(self) -> None:
        """Read all of `ctl`: what a former owner left; waits for the server."""
        start = "-"
        while start:
            start = self._hear_page(await self._page(start))

    def _page(self, start: str) -> Future[list[EndWanted]]:
        return self._link.submit(lambda scripts: scripts.ends(self._partition.keys, start, _PAGE))

    def _hear_page(self, page: Sequence[EndWanted]) -> str:
        for wanted in page:
            self.hear(wanted)
        return f"({page[-1].id}" if len(page) == _PAGE else ""

    def hear(self, wanted: EndWanted) -> None:
        """Somebody wants a message to be ended."""
        if not self._partition.owned and not self._partition.open_turns:
            return
        message = self._partition.pending.get(wanted.entry_id)
        if message is None and self._partition.has_consumed(wanted.entry_id):
            self._forget(wanted)
        elif wanted.id not in self._known:
            self._known.add(wanted.id)
            self.wanted.setdefault(wanted.turn_id, []).append(wanted)
            if message is not None and message.turn_id == wanted.turn_id:
                message.end_early(wanted.why, wanted.id)

    def taken(self, message: Endable, entry_id: str) -> None:
        """A message was read; call it only when something is wanted."""
        for wanted in self.wanted.get(message.turn_id, ()):
            if wanted.entry_id == entry_id:
                message.end_early(wanted.why, wanted.id)
                return

    def consumed(self, message: Endable, entry_id: str) -> None:
        """A message is gone; call it only when something is wanted. It may be there again, under another entry id."""
        for wanted in list(self.wanted.get(message.turn_id, ())):
            if wanted.entry_id == entry_id:
                self._forget(wanted)

    def _forget(self, wanted: EndWanted) -> None:
        if wanted.id in self._known:
            self._known.discard(wanted.id)
            left = [other for other in self.wanted.pop(wanted.turn_id, ()) if other.id != wanted.id]
            if left:
                self.wanted[wanted.turn_id] = left
        self._link.tell("XDEL", self._partition.keys.ctl, wanted.id)
