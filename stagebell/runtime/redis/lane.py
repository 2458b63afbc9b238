"""The sends of one process, in the order in which they were made, also when some have to be made again.

Every send carries the version of the registry by which its recipients were found. When the registry has changed, the
server refuses it; it is looked up and sent again. What holds at all times
    - Sends go out in the order in which `send` was called (`_entrance`), refused ones too: each has a number.
    - No send goes out, for the first time or again, while one with a lower number was refused and waits, or went out by
      another version than the one known now and may still be refused: it would overtake it.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from stagebell.errors import Busy, ServerRefused
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import SendReply
from stagebell.runtime.redis.under_way import UnderWay

_REFUSED = -1  # no version of the registry

Prepare = Callable[[], "list[Delivery] | None"]
Settle = Callable[[], Awaitable[object]]


class Sent(NamedTuple):
    """What was sent, and the ids under which it lies in the inboxes."""

    deliveries: Sequence[Delivery]
    ids: tuple[str, ...]


class _Attempt(NamedTuple):
    deliveries: Sequence[Delivery]
    version: int
    answer: Future[SendReply]


class Lane:
    """See the top of this file. Its lock lets waiters through in the order in which they came."""

    def __init__(self, link: Link, directory: Directory) -> None:
        self._link = link
        self._directory = directory
        self._entrance = asyncio.Lock()
        self._number = 0
        self._open: dict[int, int] = {}  # by number: the version by which it went out, or _REFUSED
        self._under_way = UnderWay()

    async def send(self, prepare: Prepare, settle: Settle) -> Sent:
        """Send what `prepare` finds: messages, all or none.

        Args:
            prepare: looks the recipients up, with what is known now; None when a place is not known.
            settle: makes such places known. Sends that come later wait for it.

        Raises:
            Busy: an inbox is full.
            ServerRefused: a key has a type that nobody of us wrote.
            ServerUnavailable, OutcomeUnknown: the server was away for too long.
            Exception: what `settle` raises.
        """
        async with self._entrance:
            while self._under_way.may_be_overtaken(self._directory.version):
                await self._under_way.next_answer()
            self._number = number = self._number + 1
            attempt = await self._leave(number, prepare, settle)
        try:
            while (reply := await attempt.answer).status == "STALE_REGISTRY":
                self._note(number, _REFUSED)
                attempt = await self._leave(number, prepare, settle, refused=attempt.version)
        finally:
            self._under_way.answered(self._open.pop(number))
        return _accepted(attempt, reply)

    async def _leave(self, number: int, prepare: Prepare, settle: Settle, *, refused: int | None = None) -> _Attempt:
        """Send, as soon as nobody is overtaken by it; `refused` is the version by which it was sent in vain."""
        while True:
            version = self._directory.version
            if self._would_overtake(number, version):
                await self._under_way.next_answer()
            elif version == refused:
                await self._directory.refresh()
            elif (deliveries := prepare()) is None:
                await settle()
            else:
                return self._submit(number, version, deliveries)

    def _would_overtake(self, number: int, version: int) -> bool:
        for other, went_out_by in self._open.items():  # lower numbers come first
            if other >= number:
                return False
            if went_out_by != version:
                return True
        return False

    def _submit(self, number: int, version: int, deliveries: Sequence[Delivery]) -> _Attempt:
        answer = self._link.submit(lambda scripts: scripts.send(deliveries, registry_version=version), mortal=True)
        self._note(number, version)
        return _Attempt(deliveries, version, answer)

    def _note(self, number: int, version: int) -> None:
        former = self._open.get(number)
        self._open[number] = version
        self._under_way.left(version)
        if former is not None:
            self._under_way.answered(former)


def _accepted(attempt: _Attempt, reply: SendReply) -> Sent:
    match reply.status:
        case "OK":
            return Sent(attempt.deliveries, reply.ids)
        case "BUSY":
            number, length = reply.busy
            raise Busy(attempt.deliveries[number].agent, length)
        case _:
            raise ServerRefused(f"the server refused a message: {reply.status} {reply.detail}")
