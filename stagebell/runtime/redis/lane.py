"""The sends of one process, in the order in which they were made, also when some have to be made again.

Every send carries the version of the registry by which its recipients were found. When the registry has changed, the
server refuses it; it is looked up and sent again. It is also refused while an inbox is full, or the whole server; then
it waits (`room`), or ends in `Busy`. What holds at all times
    - Sends go out in the order of the calls of `send` (`_entrance`), those that were refused too: each has a number.
    - No send goes out, for the first time or again, while one with a lower number was refused and waits, or went out by
      another version than the one known now and may still be refused: it would overtake it. (One that waits for room is
      overtaken by those for other inboxes.)
    - A send that goes out before the answer to an earlier one to the same inbox is known (`_unanswered`) names it, and
      is refused when that one was; later ones wait behind it.
What agents send is never refused for want of room, and waits for nobody: they could wait for each other.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from stagebell.errors import Busy, ServerError, ServerRefused
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import SendReply
from stagebell.runtime.redis.room import Place, Room
from stagebell.runtime.redis.settings import RedisSettings
from stagebell.runtime.redis.under_way import UnderWay

_REFUSED = -1  # no version of the registry

Prepare = Callable[[], "list[Delivery] | None"]
Settle = Callable[[], Awaitable[object]]


class Sent(NamedTuple):
    """What was sent, and the ids under which it lies in the inboxes."""

    deliveries: Sequence[Delivery]
    ids: tuple[str, ...]


class _Attempt(NamedTuple):
    version: int
    answer: Future[SendReply]


class _Send:
    """One send, and what has become of it so far; `deliveries` are those with which it went out."""

    __slots__ = ("deliveries", "limited", "number", "place", "prepare", "refusal", "settle")

    def __init__(self, prepare: Prepare, settle: Settle, limited: bool) -> None:
        self.prepare = prepare
        self.settle = settle
        self.limited = limited
        self.number = 0
        self.deliveries: Sequence[Delivery] = ()
        self.place: Place | None = None
        self.refusal: ServerError | None = None


class Lane:
    """See the top of this file. Its lock lets waiters through in the order in which they came."""

    def __init__(self, link: Link, directory: Directory, settings: RedisSettings) -> None:
        self._link = link
        self._directory = directory
        self._limit = settings.inbox_limit
        self._waits = settings.when_full == "wait"
        self._patience = settings.server_patience
        self._entrance = asyncio.Lock()
        self._at_entrance = 0  # how many hold it or wait for it
        self._open: dict[int, int] = {}  # by number: the version by which it went out, or _REFUSED
        self._under_way = UnderWay()
        self._room = Room()
        self._unanswered: dict[str, tuple[int, str]] = {}  # inbox → number and marker of the last send without answer
        self._number = 0

    async def send(self, prepare: Prepare, settle: Settle, *, limited: bool) -> Sent:
        """Send what `prepare` finds: messages, all or none.

        Args:
            prepare: looks the recipients up, with what is known now; None when a place is not known.
            settle: makes such places known. Sends that come later wait for it.
            limited: it comes from outside of all agents, and may be refused when an inbox is full.

        Raises:
            Busy: an inbox is full, and there was no room in it for too long.
            ServerRefused: a key has a type that nobody of us wrote; the server is full (code OOM).
            ServerUnavailable, OutcomeUnknown: the server was away for too long.
            Exception: what `settle` raises.
        """
        send = _Send(prepare, settle, limited)
        attempt = self._leave_at_once(send) or await self._enter(send)
        sent = await self._outcome(send, attempt)
        return sent if sent is not None else await self._wait_for_room(send)

    def _leave_at_once(self, send: _Send) -> _Attempt | None:
        """Send what has to wait for nothing and nobody, as nearly all do; None when it has to."""
        version = self._directory.version
        if self._at_entrance or self._room.lines or self._under_way.may_be_overtaken(version):
            return None
        deliveries = send.prepare()
        if deliveries is None:
            return None
        self._number = send.number = self._number + 1
        return self._submit(send, version, deliveries)

    async def _enter(self, send: _Send) -> _Attempt | None:
        self._at_entrance += 1
        try:
            async with self._entrance:
                while self._under_way.may_be_overtaken(self._directory.version):
                    await self._under_way.next_answer()
                self._number = send.number = self._number + 1
                return await self._leave(send)
        finally:
            self._at_entrance -= 1

    async def _wait_for_room(self, send: _Send) -> Sent:
        end = asyncio.get_running_loop().time() + self._patience
        try:
            while True:
                await self._await_turn(send, end)
                sent = await self._outcome(send, await self._leave(send))
                if sent is not None:
                    return sent
        finally:
            assert send.place is not None
            self._room.leave(send.place)

    async def _await_turn(self, send: _Send, end: float) -> None:
        assert send.place is not None
        try:
            async with asyncio.timeout_at(end):
                await send.place.turn()
        except TimeoutError:
            raise send.refusal or Busy(_recipients(send), self._limit) from None

    async def _outcome(self, send: _Send, attempt: _Attempt | None) -> Sent | None:
        """What has become of it; None when it has to wait for room."""
        try:
            while attempt is not None:
                reply = await attempt.answer
                if reply.status != "STALE_REGISTRY":
                    return self._accepted(send, reply)
                self._note(send.number, _REFUSED)
                attempt = await self._leave(send, refused=attempt.version)
            return None
        except ServerRefused as error:
            if error.code != "OOM" or not send.limited or not self._waits:
                raise
            self._refused(send, error)
            return None
        finally:
            self._forget(send)

    async def _leave(self, send: _Send, *, refused: int | None = None) -> _Attempt | None:
        """Send, as soon as nobody is overtaken by it; None when it has to wait for room.

        Args:
            refused: the version by which it was sent in vain.
        """
        while True:
            version = self._directory.version
            if self._would_overtake(send.number, version):
                await self._under_way.next_answer()
            elif version == refused:
                await self._directory.refresh()
            elif (deliveries := send.prepare()) is None:
                await send.settle()
            elif not self._may_go(send, deliveries):
                return None
            else:
                return self._submit(send, version, deliveries)

    def _would_overtake(self, number: int, version: int) -> bool:
        if not self._under_way.may_be_overtaken(version):
            return False
        for other, went_out_by in self._open.items():  # lower numbers come first, or wait for room in other inboxes
            if other >= number:
                return False
            if went_out_by != version:
                return True
        return False

    def _may_go(self, send: _Send, deliveries: Sequence[Delivery]) -> bool:
        inboxes = {delivery.keys.inbox for delivery in deliveries} if send.limited else frozenset[str]()
        if not self._room.must_wait(send.number, inboxes):
            return True
        self._wait(send, inboxes)
        return False

    def _wait(self, send: _Send, inboxes: set[str] | frozenset[str]) -> Place:
        if send.place is not None and send.place.inboxes != inboxes:  # other recipients than before
            self._room.leave(send.place)
            send.place = None
        if send.place is None:
            send.place = self._room.join(send.number, inboxes)
        return send.place

    def _submit(self, send: _Send, version: int, deliveries: Sequence[Delivery]) -> _Attempt:
        cap = self._limit if send.limited else 0
        after = self._follow(send.number, deliveries) if send.limited and self._waits else ()
        send.deliveries = deliveries
        answer = self._link.submit(
            lambda scripts: scripts.send(deliveries, registry_version=version, cap=cap, after=after), mortal=True
        )
        self._note(send.number, version)
        return _Attempt(version, answer)

    def _note(self, number: int, version: int) -> None:
        former = self._open.get(number)
        self._open[number] = version
        self._under_way.left(version)
        if former is not None:
            self._under_way.answered(former)

    def _follow(self, number: int, deliveries: Sequence[Delivery]) -> tuple[str, ...]:
        """For each recipient the marker of the send before this one, when its answer is not known, else its own.

        Nothing when that is so for all of them.
        """
        own = [(delivery.keys.inbox, delivery.keys.marker(delivery.turn_id)) for delivery in deliveries]
        former = [self._unanswered.get(inbox) for inbox, _ in own]
        for inbox, marker in own:
            self._unanswered[inbox] = number, marker
        if not any(former):
            return ()
        # A later one may be there: it was refused with this one, since the registry changed, and will be sent again.
        pairs = zip(own, former, strict=True)
        return tuple(last[1] if last is not None and last[0] < number else marker for (_, marker), last in pairs)

    def _forget(self, send: _Send) -> None:
        version = self._open.pop(send.number, None)
        if version is not None:
            self._under_way.answered(version)
        for delivery in send.deliveries if self._unanswered else ():
            last = self._unanswered.get(delivery.keys.inbox)
            if last is not None and last[0] == send.number:
                del self._unanswered[delivery.keys.inbox]

    def _accepted(self, send: _Send, reply: SendReply) -> Sent | None:
        match reply.status:
            case "OK":
                return Sent(send.deliveries, reply.ids)
            case "BUSY":
                number, length = reply.busy
                error = Busy(send.deliveries[number].agent, length)
                if not self._waits:
                    raise error
                self._refused(send, error)
                return None
            case _:
                raise ServerRefused(f"the server refused a message: {reply.status} {reply.detail}")

    def _refused(self, send: _Send, error: ServerError) -> None:
        send.refusal = error
        self._wait(send, {delivery.keys.inbox for delivery in send.deliveries}).refused = True


def _recipients(send: _Send) -> str:
    return ", ".join(delivery.agent for delivery in send.prepare() or ())
