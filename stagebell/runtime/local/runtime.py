"""`LocalRuntime`: everything in one process, in memory; the drop-in for AutoGen's `SingleThreadedAgentRuntime`.

Before the first `start`, messages wait. While it runs, a call to an idle agent is handled at once in the caller's task
and everything else goes through the mailboxes. After a stop, calls and publishes end in `RuntimeNotRunning` until the
next `start`; agents stay in memory until `close`.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from enum import Enum
from types import TracebackType
from typing import Any, Self

from autogen_core import (
    AgentId,
    AgentMetadata,
    CancellationToken,
    DropMessage,
    InterventionHandler,
    Subscription,
    TopicId,
)
from opentelemetry.trace import TracerProvider

from stagebell.errors import RuntimeNotRunning
from stagebell.runtime.engine.addressed import require_agent, require_topic
from stagebell.runtime.engine.checked import FLAG, GRACE, check_settings, named_settings
from stagebell.runtime.engine.clock import Clock
from stagebell.runtime.engine.deadlines import current_deadline
from stagebell.runtime.engine.snapshots import load_into, parse_snapshot, save_live, state_of
from stagebell.runtime.engine.watched import context_of
from stagebell.runtime.local.timers import LocalTimers

logger = logging.getLogger("stagebell")

_REMIND = 1.0  # seconds
_CRASHED = "the runtime has crashed, as a test wanted: make a new one"


class _Phase(Enum):
    NEW = "not started"
    RUNNING = "running"
    STOPPED = "stopped"
    CRASHED = "crashed"


class LocalRuntime(LocalTimers):
    """An agent runtime in one process.

    Args:
        intervention_handlers: see AutoGen's `InterventionHandler`; each sees what the one before it returned.
        tracer_provider: where spans go; without one, the application's global provider, if it has set one.
        ignore_unhandled_exceptions: when False, the first exception of a handler of a publish stops the processing
            and is raised by `stop`, `stop_when_idle`, `stop_when` and `process_next`.
        stop_grace: seconds that open turns may go on after `stop`.
        cancel_grace: seconds that a cancelled handler may go on before its task is cancelled.
        max_call_depth: how long a chain of calls may grow before it ends in `CallDepthExceeded`.
        warn_after: seconds after which a turn that waits, with no call open, is reported with its stack.
        clock: the time of day; without one, that of this machine.

    Raises:
        InvalidSetting: there is no such setting, or it does not take this value.
    """

    @named_settings("LocalRuntime")
    def __init__(
        self,
        *,
        intervention_handlers: Sequence[InterventionHandler] | None = None,
        tracer_provider: TracerProvider | None = None,
        ignore_unhandled_exceptions: bool = True,
        stop_grace: float = 5.0,
        cancel_grace: float = 0.5,
        max_call_depth: int = 1000,
        warn_after: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            intervention_handlers=intervention_handlers,
            tracer_provider=tracer_provider,
            cancel_grace=cancel_grace,
            max_call_depth=max_call_depth,
            warn_after=warn_after,
            clock=clock,
        )
        check_settings(
            {"stop_grace": stop_grace, "ignore_unhandled_exceptions": ignore_unhandled_exceptions},
            {"stop_grace": GRACE, "ignore_unhandled_exceptions": FLAG},
        )
        self._phase = _Phase.NEW
        self._ignore_unhandled_exceptions = ignore_unhandled_exceptions
        self._background_error: BaseException | None = None
        self._stop_grace = stop_grace
        self._reminded = False
        self._stopping: Future[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- messages

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Call an agent and wait for its reply.

        Raises:
            WrongType: the recipient is no AgentId.
            Undeliverable: the agent's type is not registered.
            CantHandle: the agent has no handler for the message.
            CallCycleError: agents would wait for each other for ever.
            CallDepthExceeded: the chain of calls is longer than `max_call_depth`.
            DeadlineExceeded: a deadline was over before the answer came, see `stagebell.deadline`.
            RuntimeNotRunning: the runtime was stopped.
            asyncio.CancelledError: the token was cancelled.
            Exception: whatever the handler raised.
        """
        if type(recipient) is not AgentId:
            require_agent(recipient)
        if self._phase is not _Phase.RUNNING:
            if self._phase is not _Phase.NEW:
                raise self._not_running(f"a call to {recipient}")
            self._remind_to_start(recipient)
        if not self._watched:
            return await self._call_here(message, recipient, sender, cancellation_token, message_id)
        context = context_of(sender, None, cancellation_token, message_id)

        async def send(changed: Any) -> Any:
            return await self._call_here(changed, recipient, sender, context.cancellation_token, context.message_id)

        return await self._watcher.call(message, context, recipient, send)

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

        It takes its place in each subscriber's mailbox before this returns.

        Raises:
            RuntimeNotRunning: the runtime was stopped.
            Exception: whatever an intervention raised.
        """
        if type(topic_id) is not TopicId:
            require_topic(topic_id)
        if self._phase is _Phase.STOPPED or not self._dispatcher.accepting:
            raise self._not_running(f"a publish to {topic_id}")
        if self._watched:
            await self._publish_observed(message, topic_id, sender, cancellation_token, message_id)
            return
        recipients = self._recipients(topic_id, sender)
        if recipients:
            self._publish_here(
                message,
                topic_id,
                recipients,
                sender,
                cancellation_token,
                message_id,
                deadline=current_deadline(),
            )

    async def _publish_observed(
        self,
        message: Any,
        topic: TopicId,
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
    ) -> None:
        context = context_of(sender, topic, token, message_id)
        message = await self._watcher.publish(message, context, topic)
        if message is DropMessage:
            return
        recipients = self._recipients(topic, sender)
        delivery = self._events.publish_span(topic, len(recipients))
        token, message_id = context.cancellation_token, context.message_id
        self._publish_here(message, topic, recipients, sender, token, message_id, delivery, current_deadline())

    # -- life

    @property
    def unprocessed_messages_count(self) -> int:
        """How many messages wait in mailboxes."""
        return self._dispatcher.queued

    def start(self) -> None:
        """Start handling messages, those that wait already included.

        Raises:
            RuntimeError: it is running.
        """
        if self._phase is _Phase.CRASHED:
            raise self._not_running("start")
        if self._phase is _Phase.RUNNING:
            raise RuntimeError("Runtime is already started")
        self._phase = _Phase.RUNNING
        self._events.refresh()
        self._dispatcher.start()
        self._timers.resume()

    async def process_next(self) -> None:
        """Start the turn of one waiting message, or of the next that comes; for stepping through by hand.

        Raises:
            Exception: what a handler of a publish raised, when unhandled exceptions are not ignored.
        """
        self._raise_background_error()
        if self._phase in (_Phase.STOPPED, _Phase.CRASHED):
            raise self._not_running("process_next")
        await self._dispatcher.run_next()

    async def stop(self) -> None:
        """Stop: waiting messages are discarded (callers get `RuntimeNotRunning`), open turns get `stop_grace` to end.

        Raises:
            RuntimeError: it is not running.
            Exception: what a handler of a publish raised, when unhandled exceptions are not ignored.
        """
        self._require_running()
        self._phase = _Phase.STOPPED
        self._halt()
        stopping = self._stopping = asyncio.get_running_loop().create_future()
        try:
            await self._dispatcher.settle(self._stop_grace)
        finally:
            self._stopping = None
            stopping.set_result(None)
        self._raise_background_error()

    async def stop_when_idle(self) -> None:
        """Stop as soon as no message waits and no turn is open. Raises as `stop` does."""
        self._require_running()
        self._refuse_inside_turn("stop_when_idle")
        await self._dispatcher.wait_idle()
        if self._phase is _Phase.CRASHED:
            raise self._not_running("stop_when_idle")
        self._phase = _Phase.STOPPED
        self._halt()
        self._raise_background_error()

    async def stop_when(self, condition: Callable[[], bool], check_period: float = 1.0) -> None:
        """Stop when `condition()` is true; it is looked at every `check_period` seconds. Raises as `stop` does."""
        self._require_running()
        while not condition() and self._background_error is None:
            await asyncio.sleep(check_period)
        await self.stop()

    async def close(self) -> None:
        """Stop if running, then close every agent and forget it; a stop that is under way ends first."""
        if self._phase is _Phase.CRASHED:
            return
        try:
            if self._phase is _Phase.RUNNING:
                await self.stop()
            elif self._stopping is not None and self._caller() is None:  # the stop waits for the turns
                await asyncio.shield(self._stopping)
        finally:
            self._phase = _Phase.STOPPED
            self._timers.close()
            await self._catalog.close()

    async def crash(self) -> None:
        """End as a killed process does; see `stagebell.testing.crash`."""
        self._phase = _Phase.CRASHED
        self._timers.close()
        ending = asyncio.get_running_loop().create_task(self._dispatcher.abort(_CRASHED), context=Context())
        await asyncio.shield(ending)

    # -- state

    async def save_state(self) -> Mapping[str, Any]:
        """The state of every agent in memory, as `{"type/key": state}`."""
        return await save_live(self._catalog)

    async def saved_states(self, agent_type: str, key: str | None = None) -> Mapping[str, Mapping[str, Any]]:
        """The states of the agents of one type (or of one, with `key`) that are in memory, by their keys."""
        live = [(at.id, agent) for at, agent in self._catalog.live_agents() if at.id.type == agent_type]
        return {id.key: await state_of(agent) for id, agent in live if key in (None, id.key)}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `save_state` gave, of any runtime; agents whose type is not registered here are left out.

        Raises:
            MalformedState: it is not such a mapping.
        """
        for agent, agent_state in parse_snapshot(state):
            if agent.type in self._catalog.types:
                await self.agent_load_state(agent, agent_state)

    async def agent_metadata(self, agent: AgentId) -> AgentMetadata:
        """What an agent says of itself; the agent is made when there is none."""
        return (await self._agent(agent)).metadata

    async def agent_save_state(self, agent: AgentId) -> Mapping[str, Any]:
        """The state of one agent; the agent is made when there is none."""
        return await state_of(await self._agent(agent))

    async def agent_load_state(self, agent: AgentId, state: Mapping[str, Any]) -> None:
        """Load a state into one agent; the agent is made when there is none."""
        await load_into(await self._agent(agent), state)

    # -- subscriptions

    async def add_subscription(self, subscription: Subscription) -> None:
        """Let a topic reach an agent type.

        Raises:
            SubscriptionError: an equal subscription exists.
            WrongType: it is no subscription.
        """
        self._subscriptions.add(subscription)

    async def remove_subscription(self, id: str) -> None:
        """Take a subscription back.

        Raises:
            SubscriptionError: there is none of this id.
        """
        self._subscriptions.remove(id)

    # -- small parts

    def _remind_to_start(self, recipient: AgentId) -> None:
        """A call before the first start waits for it; somebody may have forgotten it."""

        def remind() -> None:
            if self._phase is _Phase.NEW:
                text = "a call to %s waits for the start of the runtime: call `runtime.start()`, or use `async with`"
                logger.warning(text, recipient)

        if not self._reminded:
            self._reminded = True
            asyncio.get_running_loop().call_later(_REMIND, remind)

    def _halt(self) -> None:
        self._dispatcher.stop()
        self._timers.pause()

    def _not_running(self, what: str) -> RuntimeNotRunning:
        why = _CRASHED if self._phase is _Phase.CRASHED else "the runtime is stopped, call start() first"
        return RuntimeNotRunning(f"{what} was refused: {why}")

    def _require_running(self) -> None:
        if self._phase is not _Phase.RUNNING:
            raise RuntimeError("Runtime is not started")

    def _on_publish_error(self, error: BaseException) -> None:
        if not self._ignore_unhandled_exceptions and self._background_error is None:
            self._background_error = error
            self._halt()

    def _raise_background_error(self) -> None:
        error, self._background_error = self._background_error, None
        if error is not None:
            raise error
