"""The way of a message when somebody listens: the same on both runtimes, around whatever carries it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from autogen_core import AgentId, CancellationToken, DropMessage, MessageContext, TopicId
from autogen_core.exceptions import MessageDroppedException
from autogen_core.logging import DeliveryStage, MessageKind
from opentelemetry.trace import SpanKind

from stagebell.runtime.engine.events import Events
from stagebell.runtime.engine.interventions import Interventions


class Watched:
    """Tells events and spans, and lets interventions have their say."""

    def __init__(self, events: Events, interventions: Interventions) -> None:
        self._events = events
        self._interventions = interventions

    async def call(
        self, message: Any, context: MessageContext, recipient: AgentId, send: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """The reply to a call that `send` carries. Raises what an intervention or `send` raises."""
        with self._events.span("create", recipient, SpanKind.PRODUCER, message_type=type(message).__name__):
            self._events.message(message, MessageKind.DIRECT, DeliveryStage.SEND, context.sender, recipient)
            message = await self._interventions.on_send(message, context, recipient)
        with self._events.span("send", recipient, SpanKind.PRODUCER):
            reply = await send(message)
        self._events.message(reply, MessageKind.RESPOND, DeliveryStage.DELIVER, recipient, context.sender)
        return reply

    async def publish(self, message: Any, context: MessageContext, topic: TopicId) -> Any:
        """What is to be published; `DropMessage` when an intervention dropped it. Raises what one of them raises."""
        with self._events.span("create", topic, SpanKind.PRODUCER, message_type=type(message).__name__):
            self._events.message(message, MessageKind.PUBLISH, DeliveryStage.SEND, context.sender, topic)
            return await self._interventions.on_publish(message, context)

    async def schedule(self, message: Any, context: MessageContext, to: AgentId | TopicId) -> Any:
        """What is to come later.

        Raises:
            MessageDroppedException: an intervention dropped it.
        """
        if isinstance(to, AgentId):
            with self._events.span("create", to, SpanKind.PRODUCER, message_type=type(message).__name__):
                self._events.message(message, MessageKind.DIRECT, DeliveryStage.SEND, context.sender, to)
                return await self._interventions.on_send(message, context, to)
        message = await self.publish(message, context, to)
        if message is DropMessage:
            raise MessageDroppedException(f"an intervention dropped the message for {to}: there is no timer")
        return message


def context_of(
    sender: AgentId | None, topic: TopicId | None, token: CancellationToken | None, message_id: str | None
) -> MessageContext:
    """What interventions see of a message that leaves; it is a call when it has no topic."""
    return MessageContext(sender, topic, topic is None, token or CancellationToken(), message_id or str(uuid4()))
