"""Interventions of the application on messages: each sees what the one before it made of the message."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from autogen_core import AgentId, DropMessage, InterventionHandler, MessageContext
from autogen_core.exceptions import MessageDroppedException
from autogen_core.logging import MessageKind

from stagebell.runtime.engine.events import Events


class Interventions:
    """The intervention handlers of one runtime, in order."""

    def __init__(self, handlers: Sequence[InterventionHandler] | None, events: Events) -> None:
        self._handlers = list(handlers or ())
        self._events = events

    @property
    def active(self) -> bool:
        """True when there are any."""
        return bool(self._handlers)

    async def on_send(self, message: Any, context: MessageContext, recipient: AgentId) -> Any:
        """What becomes of a call.

        Raises:
            MessageDroppedException: a handler dropped it.
        """
        for handler in self._handlers:
            changed = await handler.on_send(message, message_context=context, recipient=recipient)
            before, message = message, self._checked(handler, "on_send", message, changed)
            if _is_drop(message):
                self._events.dropped(before, MessageKind.DIRECT, context.sender, recipient)
                raise MessageDroppedException(f"{type(handler).__name__} dropped the call to {recipient}")
        return message

    async def on_publish(self, message: Any, context: MessageContext) -> Any:
        """What becomes of a publish; `DropMessage` when a handler dropped it."""
        for handler in self._handlers:
            changed = await handler.on_publish(message, message_context=context)
            before, message = message, self._checked(handler, "on_publish", message, changed)
            if _is_drop(message):
                self._events.dropped(before, MessageKind.PUBLISH, context.sender, context.topic_id)
                return DropMessage
        return message

    async def on_response(self, message: Any, sender: AgentId, recipient: AgentId | None) -> Any:
        """What becomes of a reply.

        Raises:
            MessageDroppedException: a handler dropped it.
        """
        for handler in self._handlers:
            changed = await handler.on_response(message, sender=sender, recipient=recipient)
            if changed is None and message is None:
                continue  # a handler that answers nothing has nothing to change
            before, message = message, self._checked(handler, "on_response", message, changed)
            if _is_drop(message):
                self._events.dropped(before, MessageKind.RESPOND, sender, recipient)
                raise MessageDroppedException(f"{type(handler).__name__} dropped the reply of {sender}")
        return message

    def _checked(self, handler: InterventionHandler, method: str, before: Any, after: Any) -> Any:
        if after is not None:
            return after
        warnings.warn(
            f"Intervention handler {method} returned None. This might be unintentional. The message stays as it was: "
            f"let {type(handler).__name__}.{method} return the message, or DropMessage to drop it",
            RuntimeWarning,
            stacklevel=4,
        )
        return before


def _is_drop(message: Any) -> bool:
    return message is DropMessage or isinstance(message, DropMessage)
