"""Messages that leave from outside of all turns: from a client, or from an agent that is bound to its process.

They are taken by the server or refused, all recipients at once, and a send that is repeated is one message.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from autogen_core import AgentId, CancellationToken, TopicId

from stagebell.errors import CallDepthExceeded, Undeliverable
from stagebell.messages.ids import new_message_id, turn_id
from stagebell.messages.registry import Encoded
from stagebell.runtime.engine.clock import Clock
from stagebell.runtime.engine.deadlines import ended_by
from stagebell.runtime.engine.turn import Turn, current_turn
from stagebell.runtime.redis.awaiting import Awaiting
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.lane import Lane, Sent
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.published import Published
from stagebell.runtime.redis.replies import OpenCall, Replies
from stagebell.runtime.redis.requests import Delivery, ReplyTo
from stagebell.runtime.redis.settings import RedisSettings
from stagebell.runtime.redis.wire import Wire

logger = logging.getLogger("stagebell")


class Transport:
    """The sending side of one process."""

    def __init__(
        self,
        link: Link,
        wire: Wire,
        directory: Directory,
        replies: Replies,
        max_call_depth: int,
        settings: RedisSettings,
        clock: Clock,
    ) -> None:
        self._link = link
        self._clock = clock
        self._wire = wire
        self._directory = directory
        self._replies = replies
        self._max_call_depth = max_call_depth
        self._patience = settings.undeliverable_after
        self._awaiting = Awaiting()
        self.published = Published(link)
        self._lane = Lane(link, directory, settings)
        self._lines: dict[str, _Line] = {}
        self._unheard: set[str] = set()

    async def call(
        self,
        encoded: Encoded,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        token: CancellationToken | None = None,
        message_id: str | None = None,
        chain: tuple[str, ...] = (),
        deadline: int | None = None,
        caller: Turn | None = None,
    ) -> Any:
        """Call an agent, wherever it lives, and return its reply. If it is cancelled, so is the callee's turn.

        Raises:
            CallDepthExceeded: the chain of calls is longer than the limit.
            DeadlineExceeded: the deadline was over before the reply came.
            Undeliverable: nobody has hosted the agent's type for too long.
            DeadLettered, CantHandle, …: what became of the message.
            ServerUnavailable, OutcomeUnknown: the server was away for too long.
            asyncio.CancelledError: the token, or the turn `caller`, was cancelled.
            BaseException: what the callee's handler raised.
        """
        if deadline is None:
            return await self._call(encoded, recipient, sender, token, message_id, chain, None, caller)
        async with ended_by(deadline, self._clock, recipient):
            return await self._call(encoded, recipient, sender, token, message_id, chain, deadline, caller)

    async def _call(
        self,
        encoded: Encoded,
        recipient: AgentId,
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
        chain: tuple[str, ...],
        deadline: int | None,
        caller: Turn | None,
    ) -> Any:
        if len(chain) >= self._max_call_depth:
            raise CallDepthExceeded(recipient, len(chain) + 1, self._max_call_depth)
        id = message_id or new_message_id()
        callee_turn = turn_id(id, str(recipient))
        call = None
        while call is None and (known := self._replies.open.get(callee_turn)) is not None:
            # The same message again, while the first still waits: one call, one reply.
            call = await self._succeed(callee_turn, known, recipient, token)
            if known.answer.done() and not known.answer.cancelled():
                return self._wire.outcome(known.answer.result())
        reply = ReplyTo.client(self._replies.stream.key, callee_turn)
        envelope = self._wire.request(
            encoded, id=id, to=recipient, sender=sender, reply=reply, chain=chain, deadline=deadline
        )
        call = call or self._replies.expect(callee_turn, recipient, reply)
        try:
            sent = await self._send_to(recipient, callee_turn, envelope)
            self._replies.sent(callee_turn, sent.deliveries[0].keys, sent.ids[0])
            outcome = await self._awaiting.answer(call.answer, token, caller)
        except asyncio.CancelledError:
            self._give_up(callee_turn, recipient)
            raise
        finally:
            self._replies.forget(callee_turn, call.answer)
        return self._wire.outcome(outcome)

    def _give_up(self, field: str, recipient: AgentId) -> None:
        """Whoever awaits a call was cancelled: so is the call, unless somebody else awaits it now."""
        call, entry_id = self._replies.open.get(field), self._replies.entry_ids.get(field, "")
        keys = (call.keys if call is not None else None) or self._directory.place(recipient)

        if keys is None:
            return

        def end() -> None:
            if field not in self._replies.open:
                self._link.submit(
                    lambda scripts: scripts.end_call(keys, turn_id=field, why="cancel", entry_id=entry_id), mortal=True
                )

        # Not at once: whoever takes the call over has not heard yet that it is free.
        asyncio.get_running_loop().call_soon(end)

    async def _succeed(
        self, field: str, known: OpenCall, recipient: AgentId, token: CancellationToken | None
    ) -> OpenCall | None:
        """Wait until a call is answered, or given up by the one who waits; then it may be ours."""
        succession = self._replies.succeed(field, known)
        try:
            return await self._awaiting.answer(succession, token)
        except asyncio.CancelledError:
            if succession.done() and not succession.cancelled() and (call := succession.result()) is not None:
                self._give_up(field, recipient)
                self._replies.forget(field, call.answer)
            raise

    async def send(
        self, encoded: Encoded, recipient: AgentId, *, message_id: str | None = None, deadline: int | None = None
    ) -> None:
        """Send a message to one agent and wait for nothing but that the server has it."""
        id = message_id or new_message_id()
        envelope = self._wire.request(encoded, id=id, to=recipient, sender=None, deadline=deadline)
        await self._send_to(recipient, turn_id(id, str(recipient)), envelope)

    async def tell(self, encoded: Encoded, recipient: AgentId, sender: AgentId | None, *, message_id: str) -> None:
        """As `send`, in an agent's name, with nothing that is inherited."""
        envelope = self._wire.told(encoded, id=message_id, to=recipient, sender=sender)
        await self._send_to(recipient, turn_id(message_id, str(recipient)), envelope)

    async def publish(
        self,
        encoded: Encoded,
        topic: TopicId,
        *,
        sender: AgentId | None = None,
        message_id: str | None = None,
        here: frozenset[str] = frozenset(),
        deadline: int | None = None,
        token: CancellationToken | None = None,
    ) -> list[AgentId]:
        """Publish to all subscribers, at once.

        Args:
            token: when it is cancelled, those who have not handled the message yet do not.
            here: agent types whose agents live in this process only.

        Returns:
            The subscribers of these types; they have not got the message.
        """
        id = message_id or new_message_id()
        envelope = self._wire.publication(encoded, id=id, topic=topic, sender=sender, deadline=deadline)
        looked = False

        def prepare() -> list[Delivery] | None:
            found: list[Delivery] = []
            for agent in self._elsewhere(topic, sender, here):
                if (place := self._directory.place(agent)) is None:
                    return None
                recipient = str(agent)
                found.append(Delivery(place, turn_id(id, recipient), recipient, envelope))
            return found if found or looked else None

        async def settle() -> None:
            nonlocal looked
            looked = True  # nobody subscribes, as far as was known: that may have changed
            await self._directory.refresh_if_changed()
            for agent in self._elsewhere(topic, sender, here):
                await self._directory.find_place(agent)

        sent = await self._lane.send(prepare, settle, limited=_from_outside())
        if token is not None:
            self.published.sent(token, sent)
        found_here = (
            [agent for agent in self._directory.recipients(topic, sender) if agent.type in here] if here else []
        )
        if sender is None and not sent.deliveries and not found_here:
            self._say_unheard(topic)
        return found_here

    def _elsewhere(self, topic: TopicId, sender: AgentId | None, here: frozenset[str]) -> list[AgentId]:
        recipients = self._directory.recipients(topic, sender)
        return [agent for agent in recipients if agent.type not in here] if here else recipients

    def _say_unheard(self, topic: TopicId) -> None:
        if topic.type not in self._unheard:
            self._unheard.add(topic.type)
            text = "nobody subscribes to topic %s: what is published there now reaches no agent, not even a later one"
            logger.warning(text, topic)

    async def _send_to(self, recipient: AgentId, callee_turn: str, envelope: bytes) -> Sent:
        """Send to one agent; a process-bound one may live in another process by now."""

        def prepare() -> list[Delivery] | None:
            place = self._directory.place(recipient)
            return None if place is None else [Delivery(place, callee_turn, str(recipient), envelope)]

        async def look() -> None:
            await self._directory.refresh_if_changed()
            if self._directory.place(recipient) is None:
                raise _NotKnownYet

        if recipient.type not in self._lines:
            try:
                return await self._lane.send(prepare, look, limited=_from_outside())
            except _NotKnownYet:
                pass
        # Whoever waits for a type to become known waits here, with those behind it, and not in everybody's way.
        line = self._lines.setdefault(recipient.type, _Line())
        try:
            with line:
                async with line.lock:
                    await self._directory.wait_for_place(recipient, self._patience)
                    return await self._lane.send(prepare, look, limited=_from_outside())
        except _NotKnownYet:
            raise Undeliverable(recipient, f"agent type {recipient.type!r} has just lost its last worker") from None
        finally:
            if not line.users:
                self._lines.pop(recipient.type, None)


def _from_outside() -> bool:
    """True when no agent's code is running: what agents send is never refused, or they could wait for each other."""
    return current_turn.get() is None


class _NotKnownYet(Exception):
    """Nobody hosts the agent's type, so far."""


class _Line:
    """Those who wait for one agent type, in order."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0

    def __enter__(self) -> None:
        self.users += 1

    def __exit__(self, *_: object) -> None:
        self.users -= 1
