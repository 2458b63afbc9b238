"""What a runtime tells those who listen: AutoGen's message events, and spans. Costs nothing when nobody does."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from autogen_core import EVENT_LOGGER_NAME, AgentId, TopicId
from autogen_core.logging import (
    DeliveryStage,
    MessageDroppedEvent,
    MessageEvent,
    MessageHandlerExceptionEvent,
    MessageKind,
)
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider
from pydantic_core import PydanticSerializationError, to_json

from stagebell.runtime.engine.hiding import hide_credentials, masked_span, record_error

event_logger = logging.getLogger(EVENT_LOGGER_NAME)
hide_credentials()

Describe = Callable[[Any], str]


def pick_tracer(provider: TracerProvider | None) -> Tracer | None:
    """The tracer to use, or None when no spans would be kept.

    A provider of the application's own is used when it was set globally; AutoGen's switch
    AUTOGEN_DISABLE_RUNTIME_TRACING=true is honoured.
    """
    chosen = provider or trace.get_tracer_provider()
    if isinstance(chosen, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    if os.environ.get("AUTOGEN_DISABLE_RUNTIME_TRACING") == "true":
        return None
    return chosen.get_tracer("stagebell")


class Events:
    """Writes events and spans under AutoGen's names, so that tools made for its runtimes understand them."""

    def __init__(self, describe: Describe, tracer_provider: TracerProvider | None) -> None:
        self._describe = describe
        self._provider = tracer_provider
        self.tracer = pick_tracer(tracer_provider)

    def refresh(self) -> None:
        """Look again whether spans are wanted; the application may set its provider after making the runtime."""
        self.tracer = pick_tracer(self._provider)

    @property
    def wanted(self) -> bool:
        """True when somebody listens."""
        return self.tracer is not None or event_logger.isEnabledFor(logging.INFO)

    def message(
        self,
        message: Any,
        kind: MessageKind,
        stage: DeliveryStage,
        sender: AgentId | None,
        receiver: AgentId | TopicId | None,
    ) -> None:
        """A message was sent or is delivered."""
        if event_logger.isEnabledFor(logging.INFO):
            event_logger.info(
                MessageEvent(
                    payload=self._describe(message),
                    sender=sender,
                    receiver=receiver,
                    kind=kind,
                    delivery_stage=stage,
                )
            )

    def dropped(
        self, message: Any, kind: MessageKind, sender: AgentId | None, receiver: AgentId | TopicId | None
    ) -> None:
        """An intervention dropped a message."""
        if event_logger.isEnabledFor(logging.INFO):
            payload = self._describe(message)
            event_logger.info(MessageDroppedEvent(payload=payload, sender=sender, receiver=receiver, kind=kind))

    def failed(self, message: Any, agent: AgentId, error: BaseException) -> None:
        """A handler raised."""
        if event_logger.isEnabledFor(logging.INFO):
            payload = self._describe(message)
            event_logger.info(MessageHandlerExceptionEvent(payload=payload, handling_agent=agent, exception=error))

    @contextmanager
    def span(
        self, operation: str, destination: AgentId | TopicId, kind: SpanKind, **attributes: str
    ) -> Generator[None, None, None]:
        """A span around one step of a message's way; nothing when no spans are wanted."""
        if self.tracer is None:
            yield
            return
        name = f"autogen {operation} {_spell(destination)}"
        told = {"messaging.operation": operation, "messaging.destination": str(destination), **attributes}
        with masked_span(self.tracer, name, kind, told):
            yield

    def publish_span(self, topic: TopicId, subscribers: int) -> PublishSpan | None:
        """A span that ends when the last subscriber has handled the message."""
        if self.tracer is None or not subscribers:
            return None
        return PublishSpan(
            self.tracer.start_span(f"autogen publish {_spell(topic)}", kind=SpanKind.PRODUCER), subscribers
        )

    def context_attribute(self, sender: AgentId | None, topic: TopicId | None, is_rpc: bool, message_id: str) -> str:
        """The message context as AutoGen writes it on its spans."""
        return json.dumps({"sender": str(sender), "topic_id": str(topic), "is_rpc": is_rpc, "message_id": message_id})


class PublishSpan:
    """The span of one publish; see `ports.Delivery`."""

    def __init__(self, span: Span, subscribers: int) -> None:
        self._span = span
        self._left = subscribers

    def delivered(self, error: BaseException | None) -> None:
        """One subscriber has handled the message, or never will."""
        if error is not None:
            record_error(self._span, error, failed=False)
        self._left -= 1
        if self._left == 0:
            self._span.end()


def as_json_text(message: object) -> str:
    """A message that has no serializer here, such as a reply in memory; empty when it cannot be written."""
    try:
        return to_json(message).decode()
    except (PydanticSerializationError, ValueError):
        return ""


def _spell(destination: AgentId | TopicId) -> str:
    if isinstance(destination, AgentId):
        return f"{destination.type}.({destination.key})-A"
    return f"{destination.type}.({destination.source})-T"
