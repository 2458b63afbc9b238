"""Messages that leave from outside of all turns: from a client, or from an agent that is bound to its process.

They are taken by the server or refused, all recipients at once, and a send that is repeated is one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from autogen_core import AgentId, CancellationToken, TopicId

from stagebell.errors import Busy, CallDepthExceeded, ServerRefused
from stagebell.messages.ids import new_message_id, turn_id
from stagebell.messages.registry import Encoded
from stagebell.runtime.redis.awaiting import Awaiting
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.replies import Replies
from stagebell.runtime.redis.requests import Delivery, ReplyTo
from stagebell.runtime.redis.results import SendReply
from stagebell.runtime.redis.wire import Wire


class Transport:
    """The sending side of one process."""

    def __init__(
        self, link: Link, wire: Wire, directory: Directory, replies: Replies, max_call_depth: int, patience: float
    ) -> None:
        self._link = link
        self._wire = wire
        self._directory = directory
        self._replies = replies
        self._max_call_depth = max_call_depth
        self._patience = patience
        self._awaiting = Awaiting()

    async def call(
        self,
        encoded: Encoded,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        token: CancellationToken | None = None,
        message_id: str | None = None,
        chain: tuple[str, ...] = (),
    ) -> Any:
        """Call an agent, wherever it lives, and return its reply.

        Raises:
            CallDepthExceeded: the chain of calls is longer than the limit.
            Undeliverable: nobody has hosted the agent's type for too long.
            DeadLettered, CantHandle, …: what became of the message.
            ServerUnavailable, OutcomeUnknown: the server was away for too long.
            asyncio.CancelledError: the token was cancelled.
            BaseException: what the callee's handler raised.
        """
        if len(chain) >= self._max_call_depth:
            raise CallDepthExceeded(recipient, len(chain) + 1, self._max_call_depth)
        id = message_id or new_message_id()
        callee_turn = turn_id(id, str(recipient))
        known = self._replies.open.get(callee_turn)
        if known is not None:  # the same message again, while the first still waits: one call, one reply
            return self._wire.outcome(await asyncio.shield(known.answer))
        reply = ReplyTo.client(self._replies.stream.key, callee_turn)
        envelope = self._wire.request(encoded, id=id, to=recipient, sender=sender, reply=reply, chain=chain)
        place = await self._directory.wait_for_place(recipient, self._patience)
        call = self._replies.expect(callee_turn, recipient, place, callee_turn, reply)
        try:
            entry_id, place = await self._send_to(recipient, place, callee_turn, envelope)
            if place is not call.keys:
                call = self._replies.move(callee_turn, place)
            self._replies.entry_ids[callee_turn] = entry_id
            outcome = await self._awaiting.answer(call.answer, token)
        finally:
            self._replies.forget(callee_turn)
        return self._wire.outcome(outcome)

    async def send(self, encoded: Encoded, recipient: AgentId, *, message_id: str | None = None) -> None:
        """Send a message to one agent and wait for nothing but that the server has it."""
        id = message_id or new_message_id()
        envelope = self._wire.request(encoded, id=id, to=recipient, sender=None)
        place = await self._directory.wait_for_place(recipient, self._patience)
        await self._send_to(recipient, place, turn_id(id, str(recipient)), envelope)

    async def publish(
        self,
        encoded: Encoded,
        topic: TopicId,
        *,
        sender: AgentId | None = None,
        message_id: str | None = None,
        here: frozenset[str] = frozenset(),
    ) -> list[AgentId]:
        """Publish to all subscribers, at once.

        Args:
            here: agent types whose agents live in this process only.

        Returns:
            The subscribers of these types; they have not got the message.
        """
        id = message_id or new_message_id()
        envelope = self._wire.publication(encoded, id=id, topic=topic, sender=sender)
        while True:
            recipients = self._directory.recipients(topic, sender)
            away = [agent for agent in recipients if agent.type not in here]
            if not away:
                version = self._directory.version
                await self._directory.refresh_if_changed()
                if version == self._directory.version:
                    return recipients
                continue
            deliveries = [
                Delivery(await self._directory.find_place(agent), turn_id(id, str(agent)), str(agent), envelope)
                for agent in away
            ]
            sent = await self._send(deliveries, self._directory.version)
            if sent.status == "OK":
                return [agent for agent in recipients if agent.type in here]
            await self._directory.refresh()

    async def _send_to(
        self, recipient: AgentId, place: LeasedKeys, callee_turn: str, envelope: bytes
    ) -> tuple[str, LeasedKeys]:
        """Send to one agent; a process-bound one may live in another process by now. Returns entry id and place."""
        while True:
            delivery = Delivery(place, callee_turn, str(recipient), envelope)
            sent = await self._send([delivery], self._directory.checked_version(place))
            if sent.status == "OK":
                return sent.ids[0], place
            await self._directory.refresh()
            place = await self._directory.wait_for_place(recipient, self._patience)

    async def _send(self, deliveries: Sequence[Delivery], version: int | None = None) -> SendReply:
        reply = await self._link.submit(lambda scripts: scripts.send(deliveries, registry_version=version), mortal=True)
        match reply.status:
            case "OK" | "STALE_REGISTRY":
                return reply
            case "BUSY":
                number, length = reply.busy
                raise Busy(deliveries[number].agent, length)
            case _:
                raise ServerRefused(f"the server refused a message: {reply.status} {reply.detail}")
