"""Messages that a runtime on a server sends: calls and publishes, from inside a turn and from outside."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import AgentId, CancellationToken, DropMessage, TopicId

from stagebell.messages.ids import new_message_id, turn_id
from stagebell.runtime.engine.addressed import require_agent, require_topic
from stagebell.runtime.engine.deadlines import current_deadline
from stagebell.runtime.engine.immediate import is_immediate
from stagebell.runtime.engine.turn import Turn, current_turn
from stagebell.runtime.engine.watched import context_of
from stagebell.runtime.redis.node import Node
from stagebell.runtime.redis.states import States
from stagebell.runtime.redis.turns import DurableTurn


class Sending(States):
    """Base of `RedisRuntime`: `send_message` and `publish_message`."""

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Call an agent, wherever it lives, and wait for its reply.

        Raises:
            WrongType: the recipient is no AgentId.
            Undeliverable: nobody has hosted the agent's type for `undeliverable_after`.
            CantHandle: the agent has no handler for the message.
            UnregisteredType, MessageTooLarge: the message, or its reply, cannot travel.
            RuntimeNotRunning: the runtime is not running.
            Busy: from outside of agents: the agent's inbox is full (see `when_full`).
            DeadlineExceeded: a deadline was over before the answer came, see `stagebell.deadline`.
            asyncio.CancelledError: the token, or the turn that calls, was cancelled.
            Exception: whatever the handler raised, with the traceback of its worker as `remote_traceback`.
        """
        if type(recipient) is not AgentId:
            require_agent(recipient)
        node = self._running(f"a call to {recipient}")
        if not self._watched:
            return await self._send(node, message, recipient, sender, cancellation_token, message_id)
        context = context_of(sender, None, cancellation_token, message_id)

        async def send(changed: Any) -> Any:
            return await self._send(node, changed, recipient, sender, cancellation_token, context.message_id)

        return await self._watcher.call(message, context, recipient, send)

    async def _send(
        self,
        node: Node,
        message: Any,
        recipient: AgentId,
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
    ) -> Any:
        turn = self._durable_turn()
        # A turn calls by its journal: it may run again where that agent is not.
        if turn is None and recipient.type in node.services.bound_here:
            return await self._call_here(message, recipient, sender, token, message_id)
        if token is not None and token.is_cancelled():
            raise asyncio.CancelledError
        encoded = node.services.wire.encode(message)
        if turn is not None:
            return await turn.calls.call(encoded, recipient, sender, token, current_deadline())
        caller, message_id = current_turn.get(), message_id or new_message_id()
        with node.inquiries.called(caller, turn_id(message_id, str(recipient))):
            return await node.client.transport.call(
                encoded,
                recipient,
                sender=sender,
                token=token,
                message_id=message_id,
                chain=_lineage(caller),
                deadline=current_deadline(),
                caller=self._caller(),
            )

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        """Publish to all agents that subscribe to the topic, but not to the sender itself.

        From inside a turn it leaves with the turn's commit (see `immediate`); else it is stored for each subscriber
        when this returns. When its token is cancelled, subscribers that have not begun with it let it go, and the turns
        of those that have are cancelled (not those of agents that are bound to their process).

        Raises:
            UnregisteredType, MessageTooLarge: the message cannot travel.
            RuntimeNotRunning: the runtime is not running.
            Exception: whatever an intervention raised.
        """
        if type(topic_id) is not TopicId:
            require_topic(topic_id)
        node = self._running(f"a publish to {topic_id}")
        if self._watched:
            context = context_of(sender, topic_id, cancellation_token, message_id)
            message_id = context.message_id
            message = await self._watcher.publish(message, context, topic_id)
            if message is DropMessage:
                return
        turn = self._durable_turn()
        if turn is not None and not is_immediate():
            turn.publish(
                message, node.services.wire.encode(message), topic_id, sender, current_deadline(), cancellation_token
            )
            return
        await self._publish_now(node, message, topic_id, sender, cancellation_token, message_id)

    async def _publish_now(
        self,
        node: Node,
        message: Any,
        topic: TopicId,
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
    ) -> None:
        held, deadline = node.services.bound_here, current_deadline()
        recipients = node.services.directory.recipients(topic, sender)
        if all(agent.type in held for agent in recipients):
            await node.services.directory.refresh_if_changed()
            recipients = node.services.directory.recipients(topic, sender)
        if all(agent.type in held for agent in recipients):  # also when there are none: nothing has to travel
            self._publish_here(message, topic, recipients, sender, token, message_id, deadline=deadline)
            return
        encoded = node.services.wire.encode(message)
        here = await node.client.transport.publish(
            encoded, topic, sender=sender, message_id=message_id, here=held, deadline=deadline, token=token
        )
        if here:
            self._publish_here(message, topic, here, sender, token, message_id, deadline=deadline)

    def _publish_turn_here(
        self,
        message: Any,
        topic: TopicId,
        agents: list[AgentId],
        sender: AgentId | None,
        message_id: str,
        deadline: int | None,
    ) -> None:
        self._publish_here(message, topic, agents, sender, None, message_id, deadline=deadline)


def _lineage(turn: Turn | None) -> tuple[str, ...]:
    """The calls from which the code that is running descends, although its own turn is not durable."""
    while turn is not None:
        if isinstance(turn.receipt, DurableTurn):
            return (*turn.receipt.envelope.chain, turn.receipt.turn_id)
        turn = turn.parent
    return ()
