"""Calls made from outside of all turns, and the stream that brings their replies to this process."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from typing import Any, NamedTuple

from autogen_core import AgentId

from stagebell.messages.codec import unpack
from stagebell.messages.envelope import Envelope
from stagebell.runtime.redis.ears import Fields, Stream, told
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import ReplyTo

logger = logging.getLogger("stagebell")


class OpenCall(NamedTuple):
    """A call that waits for its reply; `keys`, where its request lies, are known once the server has taken it."""

    recipient: AgentId
    keys: LeasedKeys | None
    turn_id: str
    reply: ReplyTo
    answer: Future[Envelope]
    since: float


class Replies:
    """The open calls of one process, by the text under which their replies come."""

    def __init__(self, stream_key: str) -> None:
        self.stream = Stream(stream_key, self._hear, trim=True)
        self.open: dict[str, OpenCall] = {}
        self.entry_ids: dict[str, str] = {}

    def expect(self, turn_id: str, recipient: AgentId, reply: ReplyTo) -> OpenCall:
        """Wait from now on for the reply to a call, which comes under the callee's turn id."""
        loop = asyncio.get_running_loop()
        self.open[turn_id] = call = OpenCall(recipient, None, turn_id, reply, loop.create_future(), loop.time())
        return call

    def succeed(self, field: str, known: OpenCall) -> Future[OpenCall | None]:
        """Becomes the call itself, expected anew, when the one who awaits `known` gives up; else None, at its end."""
        succession: Future[OpenCall | None] = asyncio.get_running_loop().create_future()

        def go_on(answer: Future[Envelope]) -> None:
            # At once, since the reply may be the next thing that is heard.
            if not succession.done():
                current = self.open.get(field)
                free = answer.cancelled() and (current is None or current.answer is answer)
                succession.set_result(self.expect(field, known.recipient, known.reply) if free else None)

        known.answer.add_done_callback(go_on)
        return succession

    def sent(self, turn_id: str, keys: LeasedKeys, entry_id: str) -> None:
        """The server has taken the request."""
        if turn_id in self.open:
            self.open[turn_id] = self.open[turn_id]._replace(keys=keys)
            self.entry_ids[turn_id] = entry_id

    def forget(self, field: str, answer: Future[Envelope]) -> None:
        """Wait no more for this answer; somebody else may go on waiting under the same field."""
        call = self.open.get(field)
        if call is not None and call.answer is answer:
            self.open.pop(field)
            self.entry_ids.pop(field, None)

    def adopt(self, field: str, call: OpenCall, entry_id: str) -> None:
        """Take over a call whose turn ends while a task of it still waits."""
        if entry_id:
            self.entry_ids[field] = entry_id
        if field not in self.open:
            self.open[field] = call
            call.answer.add_done_callback(lambda answer: self.forget(field, answer))

    def fail_all(self, error: BaseException) -> None:
        """Give every open call this error."""
        for call in list(self.open.values()):
            if not call.answer.done():
                call.answer.set_exception(error)
                call.answer.exception()  # whoever awaits it gets it; nobody needs a warning that nobody does

    def hear(self, entries: list[Any]) -> None:
        """Replies that were read from the stream otherwise than by listening."""
        for id, flat in entries:
            for fields in told(flat):
                self._hear(id.decode(), fields)

    def _hear(self, id: str, fields: Fields) -> None:
        field = fields[b"j"].decode()
        call = self.open.get(field)
        if call is None or call.answer.done():
            return  # the caller gave up, or the reply was sent twice
        try:
            call.answer.set_result(unpack(fields[b"e"]))
        except Exception as error:
            call.answer.set_exception(error)
