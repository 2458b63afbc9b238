"""Messages in memory to one agent for which nobody waits; and who hears when one comes to nothing.

told ──▶ handled
  └────▶ failed, or was answered with something else than is expected ──▶ whoever told it, by a `SetAside`
  └────▶ failed ──▶ the agent itself, if its class has a handler for `SetAside`
"""

from __future__ import annotations

import json
import logging
from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any

from autogen_core import AgentId
from pydantic import JsonValue

from stagebell.errors import CantHandle, MessageError, StagebellError, Undeliverable
from stagebell.messages.envelope import is_json
from stagebell.messages.failure import reason_text
from stagebell.messages.registry import TypeRegistry
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.catalog import Catalog
from stagebell.runtime.engine.dispatch import Dispatcher
from stagebell.runtime.engine.outcome import hears_of_set_aside
from stagebell.runtime.engine.turn import Entry

logger = logging.getLogger("stagebell")

Word = Callable[[SetAside, AgentId], None]


class Telling:
    """Tells agents in memory; `give_word` brings a word to an agent, wherever that lives."""

    def __init__(self, catalog: Catalog, dispatcher: Dispatcher, registry: TypeRegistry, give_word: Word) -> None:
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._registry = registry
        self._give_word = give_word

    def tell(
        self,
        message: Any,
        recipient: AgentId,
        sender: AgentId | None,
        message_id: str | None,
        expects: type | None = None,
    ) -> None:
        """Put a message that nobody waits for into an agent's mailbox; it inherits nothing from whoever sends it.

        Raises:
            Undeliverable: the agent's type is not registered here.
        """
        hosted = self._catalog.types.get(recipient.type)
        if hosted is None:
            raise Undeliverable(recipient, f"agent type {recipient.type!r} is not registered in this runtime")
        entry = Entry(message, Context(), sender=sender, is_rpc=True, message_id=message_id)
        entry.activation = activation = hosted.live.get(recipient.key) or hosted.activation(recipient)
        if expects is not None and sender is not None:
            entry.reply = get_running_loop().create_future()
            entry.reply.add_done_callback(partial(self._answered, message, recipient, sender, expects))
        self._dispatcher.enqueue(activation, entry)

    def of_a_caller(self, message: Any, to: AgentId) -> None:
        """Tell an agent that a caller waits no more; nothing once the runtime is stopped."""
        if self._dispatcher.accepting:
            self.tell(message, to, None, None)

    def set_aside(self, entry: Entry, agent: AgentId, error: BaseException) -> None:
        """A message that nobody waits for was not handled: its agent hears of it, if its class wants that."""
        hosted = self._catalog.types.get(agent.type)
        if hosted is not None and hears_of_set_aside(hosted.class_of(agent)) and type(entry.message) is not SetAside:
            self._say(entry.message, agent, error, agent)

    def _answered(self, message: Any, recipient: AgentId, sender: AgentId, expects: type, reply: Future[Any]) -> None:
        error = CancelledError("it was cancelled") if reply.cancelled() else reply.exception()
        if error is None and not isinstance(reply.result(), expects):
            error = CantHandle(recipient, type(message).__name__)
        if error is not None:
            self._say(message, recipient, error, sender)

    def _say(self, message: Any, agent: AgentId, error: BaseException, to: AgentId) -> None:
        if not self._dispatcher.accepting:
            return
        name, data = self._written(message)
        word = SetAside(agent=str(agent), type=name, data=data, error=type(error).__name__, reason=reason_text(error))
        try:
            self._give_word(word, to)
        except StagebellError as failed:
            logger.warning("%s cannot be told that a message was set aside: %s", to, failed)

    def _written(self, message: Any) -> tuple[str, JsonValue]:
        try:
            encoded = self._registry.encode(message)
            return encoded.name, json.loads(encoded.data) if is_json(encoded.content_type) else None
        except (MessageError, ValueError):
            return type(message).__name__, None
