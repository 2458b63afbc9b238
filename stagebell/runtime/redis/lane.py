"""The sends of one process, in the order in which they were made, also when some have to be made again.

Every send carries the version of the registry by which its recipients were found. When the registry has changed, the
server refuses it; it is looked up and sent again. What holds at all times
    - Sends go out in the order in which `send` was called (`_entrance`), and those that were refused go out again in
      that order (`_again`), since the server answers in order.
    - No send goes out by a newer version of the registry while one that went out by an older version may still be
      refused: it would overtake it.
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
    """See the top of this file. Its locks let waiters through in the order in which they came."""

    def __init__(self, link: Link, directory: Directory) -> None:
        self._link = link
        self._directory = directory
        self._entrance = asyncio.Lock()
        self._again = asyncio.Lock()
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
            attempt = await self._submit(prepare, settle)
        try:
            while (reply := await attempt.answer).status == "STALE_REGISTRY":
                async with self._again:
                    if attempt.version == self._directory.version:
                        await self._directory.refresh()
                    former, attempt = attempt, await self._submit(prepare, settle)
                    self._under_way.answered(former.version)
        finally:
            self._under_way.answered(attempt.version)
        return _accepted(attempt, reply)

    async def _submit(self, prepare: Prepare, settle: Settle) -> _Attempt:
        while (deliveries := prepare()) is None:
            await settle()
        version = self._directory.version
        found = deliveries
        answer = self._link.submit(lambda scripts: scripts.send(found, registry_version=version), mortal=True)
        self._under_way.left(version)
        return _Attempt(found, version, answer)


def _accepted(attempt: _Attempt, reply: SendReply) -> Sent:
    match reply.status:
        case "OK":
            return Sent(attempt.deliveries, reply.ids)
        case "BUSY":
            number, length = reply.busy
            raise Busy(attempt.deliveries[number].agent, length)
        case _:
            raise ServerRefused(f"the server refused a message: {reply.status} {reply.detail}")
