"""What happens in a turn that was taken from a mailbox: make the agent, handle the message, settle the outcome."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final

from autogen_core import Agent, AgentId
from autogen_core.logging import DeliveryStage, MessageKind
from opentelemetry.trace import SpanKind

from stagebell.runtime.engine.catalog import Catalog
from stagebell.runtime.engine.deadlines import Deadlines
from stagebell.runtime.engine.events import Events
from stagebell.runtime.engine.interventions import Interventions
from stagebell.runtime.engine.outcome import RuntimeRequest, handle, require_handler, set_error, set_result
from stagebell.runtime.engine.turn import LATER, Entry, Turn

logger = logging.getLogger("autogen_core")
told_logger = logging.getLogger("stagebell")

_UNHEARD: Final = "%s failed to handle a message that nobody waits for"


class Performer:
    """Runs the messages of one runtime. `on_error` hears of each publish whose handler raised."""

    def __init__(
        self,
        catalog: Catalog,
        events: Events,
        interventions: Interventions,
        deadlines: Deadlines,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.catalog = catalog
        self._events = events
        self._interventions = interventions
        self._deadlines = deadlines
        self._on_error = on_error
        self.on_set_aside: Callable[[Entry, AgentId, BaseException], None] = lambda entry, agent, error: None

    @property
    def watched(self) -> bool:
        """True when events, spans or interventions are wanted."""
        return self._interventions.active or self._events.wanted

    async def perform(self, turn: Turn, entry: Entry) -> None:
        """Handle one message and settle its outcome. Raises nothing but what ends the process."""
        activation = turn.activation
        try:
            agent = activation.agent or await self.catalog.agent_of(activation)
            if entry.receipt is not None and (begun := entry.receipt.begin(turn)) is not None:
                await begun
            if not entry.is_rpc and entry.receipt is None and (entry.deadline is not None or entry.token is not None):
                result = await self._handle_limited(turn, agent, entry)
            elif self.watched:
                result = await self._handle_observed(turn, entry)
            else:
                result = await handle(agent, entry.message, turn)
            if turn.later is not None:
                result = turn.later.result(result)
            elif entry.is_rpc and self._interventions.active and not isinstance(entry.message, RuntimeRequest):
                result = await self._interventions.on_response(result, activation.id, entry.sender)
        except BaseException as error:
            await self._failed(turn, entry, error)
        else:
            receipt = entry.receipt  # not in a coroutine of its own: this runs for every durable turn
            if receipt is not None and result is not LATER and (committed := receipt.commit(turn, result)) is not None:
                await committed
            self._answer(turn, entry, result)

    async def finish(self, turn: Turn, agent: Agent, entry: Entry, rest: Awaitable[Any]) -> None:
        """Await the rest of a handler that nobody watches, and settle its outcome."""
        try:
            result = await rest
        except BaseException as error:
            self.settle_error(turn, entry, error)
        else:
            self.settle(turn, agent, entry, result)

    def settle(self, turn: Turn, agent: Agent, entry: Entry, result: Any) -> None:
        """Answer the caller, if there is one."""
        try:
            if turn.later is not None:
                result = turn.later.result(result)
            elif result is None and entry.is_rpc:
                require_handler(agent, entry.message, turn)
        except BaseException as error:
            self._answer_error(entry, turn.activation.id, error)
            return
        self._answer(turn, entry, result)

    def settle_error(self, turn: Turn, entry: Entry, error: BaseException) -> None:
        """Give the caller its error, or report that of a publish."""
        if entry.is_rpc:
            self._answer_error(entry, turn.activation.id, error)
        elif turn.expired:
            logger.warning("a publish to %s was not handled to its end, its deadline is over", turn.activation.id)
            self.on_set_aside(entry, turn.activation.id, error)
        elif isinstance(error, CancelledError):
            logger.warning("a publish to %s was not handled to its end, its turn was cancelled", turn.activation.id)
        else:
            logger.error("Error processing publish message for %s", turn.activation.id, exc_info=error)
            self._on_error(error)
            self.on_set_aside(entry, turn.activation.id, error)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error

    def discard(self, entry: Entry, error: BaseException) -> None:
        """A waiting message will not be handled here."""
        if entry.receipt is not None:
            entry.receipt.drop()
        if entry.delivery is not None:
            entry.delivery.delivered(error)
        if entry.told and entry.activation is not None:
            told_logger.error(_UNHEARD, entry.activation.id, exc_info=error)
        set_error(entry.reply, error)

    def _answer_error(self, entry: Entry, agent: AgentId, error: BaseException) -> None:
        """Give the caller its error; when there is none, it is told in the log."""
        if not entry.told:
            set_error(entry.reply, error)
        elif not isinstance(error, CancelledError):
            told_logger.error(_UNHEARD, agent, exc_info=error)
            self._on_error(error)
            self.on_set_aside(entry, agent, error)

    async def _handle_limited(self, turn: Turn, agent: Agent, entry: Entry) -> Any:
        """Handle a publish that may be cancelled or come too late; what is bound to its process handles it anyway."""
        bound = turn.activation.hosted.process_bound
        if entry.token is not None and entry.token.is_cancelled() and not bound:
            raise CancelledError
        with ExitStack() as limits:
            if entry.deadline is not None and not bound:
                limits.enter_context(self._deadlines.limit(turn, entry.deadline))
            return await (self._handle_observed(turn, entry) if self.watched else handle(agent, entry.message, turn))

    async def _handle_observed(self, turn: Turn, entry: Entry) -> Any:
        activation, kind = turn.activation, MessageKind.DIRECT if entry.is_rpc else MessageKind.PUBLISH
        assert activation.agent is not None
        receiver = activation.id if entry.is_rpc else None
        self._events.message(entry.message, kind, DeliveryStage.DELIVER, entry.sender, receiver)
        context = self._events.context_attribute(entry.sender, entry.topic_id, entry.is_rpc, turn.message_id)
        with ExitStack() as spans:
            if entry.topic_id is not None and entry.receipt is not None:
                spans.enter_context(self._events.span("publish", entry.topic_id, SpanKind.CONSUMER))
            spans.enter_context(self._events.span("process", activation.id, SpanKind.CONSUMER, message_context=context))
            result = await handle(activation.agent, entry.message, turn)
        if entry.is_rpc:
            self._events.message(result, MessageKind.RESPOND, DeliveryStage.SEND, activation.id, entry.sender)
        return result

    def _answer(self, turn: Turn, entry: Entry, result: Any) -> None:
        if result is LATER and turn.later is not None:
            turn.later.keep(entry)
        else:
            set_result(entry.reply, result)
        if entry.delivery is not None:
            entry.delivery.delivered(None)

    async def _failed(self, turn: Turn, entry: Entry, error: BaseException) -> None:
        self._events.failed(entry.message, turn.activation.id, error)
        if entry.delivery is not None:
            entry.delivery.delivered(error)
        if entry.receipt is None:
            self.settle_error(turn, entry, error)
            return
        await entry.receipt.fail(turn, error)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
