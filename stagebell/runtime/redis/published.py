"""Publishes that came with a token: when it is cancelled, those of their messages that were not handled yet are ended.

Kept as long as the token lives, and of each token the newest thousand. Once a message was consumed its end is moot, so
nothing has to be told when it was.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from autogen_core import CancellationToken

from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.lane import Sent
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import InboxEntry

_MOST = 1000
_PAGE = 256


class _Message(NamedTuple):
    keys: LeasedKeys
    turn_id: str
    entry_id: str


class Published:
    """What one process has published with a token."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sent: WeakKeyDictionary[CancellationToken, deque[_Message]] = WeakKeyDictionary()

    def sent(self, token: CancellationToken, sent: Sent) -> None:
        """A publish from outside of all turns was taken by the server."""
        pairs = zip(sent.deliveries, sent.ids, strict=True)
        self._keep(token, (_Message(to.keys, to.turn_id, entry_id) for to, entry_id in pairs))

    def committed(self, token: CancellationToken, deliveries: Iterable[Delivery]) -> None:
        """A turn that published was committed; where in the inboxes the messages are is looked up when needed."""
        self._keep(token, (_Message(to.keys, to.turn_id, "") for to in deliveries))

    def _keep(self, token: CancellationToken, messages: Iterable[_Message]) -> None:
        loop = get_running_loop()
        known = self._sent.get(token)
        if known is None:
            known = self._sent[token] = deque[_Message](maxlen=_MOST)
            token.add_callback(_hop(loop, self._end_all, known))
        known.extend(messages)
        if token.is_cancelled():
            loop.call_soon(self._end_all, known)

    def _end_all(self, known: deque[_Message]) -> None:
        while known:
            message = known.popleft()
            if message.entry_id:
                self._end(message)
            else:
                self._find(message, "-")

    def _end(self, message: _Message) -> None:
        keys, turn_id, entry_id = message
        self._link.submit(
            lambda scripts: scripts.end_call(keys, turn_id=turn_id, why="cancel", entry_id=entry_id), mortal=True
        )

    def _find(self, message: _Message, start: str) -> None:
        """Look a message up in its inbox, page by page, and end it."""

        def look(page: Sequence[InboxEntry] | BaseException) -> None:
            if isinstance(page, BaseException):
                return  # the server is away for good
            found = next((entry for entry in page if entry.turn_id == message.turn_id), None)
            if found is not None:
                self._end(message._replace(entry_id=found.entry_id))
            elif len(page) == _PAGE:
                self._find(message, f"({page[-1].entry_id}")

        self._link.run(lambda scripts: scripts.read(message.keys.inbox, start, _PAGE), look, mortal=True)


def _hop(loop: AbstractEventLoop, end: Callable[[deque[_Message]], None], known: deque[_Message]) -> Callable[[], None]:
    """What a token calls, from whatever thread cancels it."""

    def cancelled() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(end, known)

    return cancelled
