"""What both runtimes share of AutoGen's `AgentRuntime`: agent types, serializers, and calls that stay in memory."""

from __future__ import annotations

import logging
from asyncio import CancelledError, get_running_loop, sleep
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Any, TypeVar, cast

from autogen_core import (
    Agent,
    AgentId,
    AgentRuntime,
    AgentType,
    CancellationToken,
    InterventionHandler,
    MessageSerializer,
    TopicId,
)
from opentelemetry.trace import Tracer, TracerProvider

from stagebell.errors import (
    CallCycleError,
    CallDepthExceeded,
    RuntimeNotRunning,
    StagebellError,
    Undeliverable,
    UnknownAgentType,
)
from stagebell.messages.registry import TypeRegistry
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.addressed import require_agent, require_factory
from stagebell.runtime.engine.calls import find_cycle
from stagebell.runtime.engine.catalog import Catalog, HostedType
from stagebell.runtime.engine.checked import HOST_SETTINGS, check_settings
from stagebell.runtime.engine.clock import Clock, SystemClock
from stagebell.runtime.engine.deadlines import Deadlines, deadline_of, given_deadline
from stagebell.runtime.engine.deferred import RepliesInMemory
from stagebell.runtime.engine.dispatch import Dispatcher
from stagebell.runtime.engine.drive import drive
from stagebell.runtime.engine.events import Events, as_json_text
from stagebell.runtime.engine.hops import context_for, next_hop
from stagebell.runtime.engine.interventions import Interventions
from stagebell.runtime.engine.outcome import require_handler
from stagebell.runtime.engine.performer import Performer
from stagebell.runtime.engine.ports import Delivery
from stagebell.runtime.engine.telling import Telling
from stagebell.runtime.engine.turn import LATER, Entry, Turn, current_turn
from stagebell.runtime.engine.watched import Watched

logger = logging.getLogger("stagebell")

T = TypeVar("T", bound=Agent)

_ANY_AGENT: type[Any] = Agent

# A call runs on its caller's stack; every so many levels it goes to a task of its own, so that a long chain of calls
# meets our limit and not the interpreter's.
_LEVELS_PER_TASK = 8
_CALLS_BETWEEN_YIELDS = 256


class Host:
    """Base of both runtimes.

    Args:
        intervention_handlers: see AutoGen's `InterventionHandler`; each sees what the one before it returned.
        tracer_provider: where spans go; without one, the application's global provider, if it has set one.
        cancel_grace: seconds that a cancelled handler may go on before its task is cancelled.
        max_call_depth: how long a chain of calls may grow.
        warn_after: seconds after which a turn that waits, with no call open, is reported with its stack.
        clock: the time of day; without one, that of this machine.
    """

    def __init__(
        self,
        *,
        intervention_handlers: Sequence[InterventionHandler] | None,
        tracer_provider: TracerProvider | None,
        cancel_grace: float,
        max_call_depth: int,
        warn_after: float,
        clock: Clock | None,
    ) -> None:
        given = {"cancel_grace": cancel_grace, "max_call_depth": max_call_depth, "warn_after": warn_after}
        check_settings({**given, "clock": clock, "intervention_handlers": intervention_handlers}, HOST_SETTINGS)
        self._clock: Clock = clock or SystemClock()
        self._registry = TypeRegistry()
        self._events = Events(self._describe, tracer_provider)
        self._interventions = Interventions(intervention_handlers, self._events)
        self._watcher = Watched(self._events, self._interventions)
        self._catalog = Catalog(cast(AgentRuntime, self), RepliesInMemory(self._interventions), self._clock)
        self._deadlines = Deadlines(self._clock)
        performer = Performer(self._catalog, self._events, self._interventions, self._deadlines, self._on_publish_error)
        self._dispatcher = Dispatcher(self._catalog, performer, grace=cancel_grace, warn_after=warn_after)
        self._deadlines.expire = self._dispatcher.expire
        self._registry.add_type(SetAside)
        self._telling = Telling(self._catalog, self._dispatcher, self._registry, self._give_word)
        performer.on_set_aside = self._telling.set_aside
        self._catalog.later.tell = self._telling.of_a_caller
        self._max_call_depth = max_call_depth
        self._inline_calls = 0

    @property
    def tracer(self) -> Tracer | None:
        """Makes the spans of this runtime; None when none are kept."""
        return self._events.tracer

    # -- agent types and their agents

    async def register_factory(
        self,
        type: str | AgentType,
        agent_factory: Callable[[], T | Awaitable[T]],
        *,
        expected_class: type[T] | None = None,
    ) -> AgentType:
        """Register how agents of a type are made; usually called through `RoutedAgent.register`.

        Raises:
            AlreadyRegistered: this runtime has the type.
            WrongType: the factory is none.
        """
        agent_type = AgentType(type) if isinstance(type, str) else type
        require_factory(agent_factory, agent_type.type)
        hosted = self._catalog.add_factory(agent_type.type, agent_factory, expected_class)
        await self._hosted(hosted)
        return agent_type

    async def register_agent_instance(self, agent_instance: Agent, agent_id: AgentId) -> AgentId:
        """Register one agent that exists already; it lives in this process.

        Raises:
            AlreadyRegistered: the agent exists, or its type has a factory or agents of another class.
        """
        require_agent(agent_id, "the id of the agent")
        is_new = agent_id.type not in self._catalog.types
        hosted = await self._catalog.add_instance(agent_instance, agent_id)
        if is_new:
            await self._hosted(hosted)
        return agent_id

    async def _hosted(self, hosted: HostedType) -> None:
        """A type was registered here."""

    async def get(
        self, id_or_type: AgentId | AgentType | str, /, key: str = "default", *, lazy: bool = True
    ) -> AgentId:
        """The id of an agent; with `lazy=False` the agent is made now."""
        if isinstance(id_or_type, AgentId):
            agent = id_or_type
        else:
            agent = AgentId(id_or_type if isinstance(id_or_type, str) else id_or_type.type, key)
        if not lazy:
            await self._agent(agent)
        return agent

    def add_message_serializer(self, serializer: MessageSerializer[Any] | Sequence[MessageSerializer[Any]]) -> None:
        """Make message types known.

        Raises:
            TypeConflict: another class is known under the same wire name.
            WrongType: it is no serializer.
        """
        self._registry.add(serializer)

    async def try_get_underlying_agent_instance(self, id: AgentId, type: type[T] = _ANY_AGENT) -> T:
        """The Python object of an agent, made when there is none; for tests and inspection.

        Raises:
            UnknownAgentType: its type is not registered here.
            TypeError: it is not a `type`.
        """
        agent = await self._agent(id)
        if not isinstance(agent, type):
            raise TypeError(f"agent {id} is not a {type.__name__}, it is a {agent.__class__.__name__}")
        return agent

    async def _agent(self, id: AgentId) -> Agent:
        require_agent(id, "the id of the agent")
        return await self._catalog.agent_of(self._catalog.hosted(id.type).activation(id))

    # -- messages that stay in memory

    async def _call_here(
        self,
        message: Any,
        recipient: AgentId,
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
    ) -> Any:
        hosted = self._catalog.types.get(recipient.type)
        if hosted is None:
            raise Undeliverable(recipient, f"agent type {recipient.type!r} is not registered in this runtime")
        if token is not None and token.is_cancelled():
            raise CancelledError
        caller, hops = self._caller(), next_hop(recipient)
        deadline = given_deadline.get()
        if caller is not None and caller.deadline is not None:
            deadline = deadline_of(caller)
        self._inline_calls += 1
        if caller is None and not self._inline_calls % _CALLS_BETWEEN_YIELDS:
            await sleep(0)  # calls that end in their first step never give way to others
        activation = hosted.live.get(recipient.key) or hosted.activation(recipient)
        agent = activation.agent
        if (
            agent is None
            or deadline is not None
            or not self._dispatcher.started
            or self._watched
            or not self._may_inline(activation, caller)
        ):
            return await self._call_queued(activation, message, sender, token, message_id, caller, deadline, hops)
        turn = Turn(activation, caller, sender, None, True, token, message_id)
        turn.inline, turn.handles = True, type(message)
        activation.push_turn(turn)
        try:
            result = await drive(self._dispatcher, turn, agent.on_message(message, turn), context_for(hops))
        except CancelledError:
            if caller is None and self._dispatcher.aborted:
                raise RuntimeNotRunning(self._dispatcher.aborted) from None
            raise
        if turn.later is not None:
            return await self._answered_later(turn, turn.later.result(result), caller, token)
        if result is None:
            require_handler(agent, message, turn)
        return result

    def _may_inline(self, activation: Activation, caller: Turn | None) -> bool:
        if caller is not None and (
            caller.depth % _LEVELS_PER_TASK == _LEVELS_PER_TASK - 1 or caller.depth >= self._max_call_depth
        ):
            return False
        return activation.admits(caller) and not activation.hosted.interrupted_by  # what may be interrupted is kept

    async def _call_queued(
        self,
        activation: Activation,
        message: Any,
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
        caller: Turn | None,
        deadline: int | None,
        hops: int | None,
    ) -> Any:
        dispatcher = self._dispatcher
        self._refuse_endless(activation, caller)
        entry = Entry(
            message,
            context_for(hops),
            sender=sender,
            is_rpc=True,
            token=token,
            message_id=message_id,
            parent=caller,
            reply=get_running_loop().create_future(),
        )
        entry.activation = activation
        alarm = None if deadline is None else self._deadlines.guard(entry, deadline)
        self._open_call(entry)
        dispatcher.enqueue(activation, entry)
        try:
            return await self._outcome_of(entry)
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _answered_later(
        self, turn: Turn, result: Any, caller: Turn | None, token: CancellationToken | None
    ) -> Any:
        """The outcome of a call whose turn ran here, and ended without an answer."""
        if result is not LATER or turn.later is None:
            return result
        entry = Entry(None, Context(), token=token, parent=caller, reply=get_running_loop().create_future())
        self._open_call(entry)
        turn.later.keep(entry)
        return await self._outcome_of(entry)

    def _open_call(self, entry: Entry) -> None:
        caller = entry.parent
        if caller is not None:
            caller.calls = caller.calls or []
            caller.calls.append(entry)
        self._dispatcher.link(get_running_loop(), entry)

    async def _outcome_of(self, entry: Entry) -> Any:
        dispatcher, caller = self._dispatcher, entry.parent
        try:
            assert entry.reply is not None
            return await entry.reply
        except CancelledError:
            if not dispatcher.withdraw(entry) and entry.turn is not None:
                dispatcher.cancel(entry.turn)
            raise
        finally:
            dispatcher.unlink(entry)
            if caller is not None and caller.calls and entry in caller.calls:
                caller.calls.remove(entry)

    def _refuse_endless(self, activation: Activation, caller: Turn | None) -> None:
        if caller is None:
            return
        if caller.depth + 1 > self._max_call_depth:
            raise CallDepthExceeded(activation.id, caller.depth + 1, self._max_call_depth)
        if activation.top is not None and not activation.hosted.interleaved:
            cycle = find_cycle(caller, activation)
            if cycle is not None:
                raise CallCycleError(cycle)

    def _publish_here(
        self,
        message: Any,
        topic: TopicId,
        recipients: Sequence[AgentId],
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
        delivery: Delivery | None = None,
        deadline: int | None = None,
    ) -> None:
        entry = Entry(
            message,
            context_for(next_hop(topic)),
            sender=sender,
            topic_id=topic,
            token=token,
            message_id=message_id,
            delivery=delivery,
            deadline=deadline,
        )
        types, enqueue = self._catalog.types, self._dispatcher.enqueue
        for agent in recipients:
            hosted = types.get(agent.type)
            if hosted is None:
                error = UnknownAgentType(agent.type)
                logger.error("a subscription maps %s to an agent that cannot be made: %s", topic, error)
                if delivery is not None:
                    delivery.delivered(error)
                self._on_publish_error(error)
                continue
            enqueue(hosted.live.get(agent.key) or hosted.activation(agent), entry)

    def _give_word(self, word: SetAside, to: AgentId) -> None:
        """Tell an agent of a message that was set aside."""
        self._telling.tell(word, to, None, None)

    @property
    def state_limit(self) -> int | None:
        """How many bytes a stored state may have; see `ports.StateLimit`."""
        return None

    def may_go_on(self) -> bool:
        """Whether the turn that asks may do at once what it would else tell its own agent; see `ports.GoingOn`."""
        turn = self._caller()
        if turn is None or turn.receipt is not None or turn.cancelled or turn.activation.mailbox:
            return False
        return self._dispatcher.started and self._dispatcher.accepting

    # -- small parts

    def _refuse_inside_turn(self, what: str) -> None:
        if self._caller() is not None:
            raise RuntimeError(f"{what} was called from inside a turn, for whose end it would wait for ever")

    def _caller(self) -> Turn | None:
        """The turn of this runtime whose handler's code is running."""
        turn = current_turn.get()
        if (
            turn is None
            or turn.closed
            or self._catalog.types.get(turn.activation.hosted.name) is not turn.activation.hosted
        ):
            return None
        return turn

    @property
    def _watched(self) -> bool:
        return self._interventions.active or self._events.wanted

    def _on_publish_error(self, error: BaseException) -> None:
        """A handler of a publish raised."""

    def _describe(self, message: Any) -> str:
        try:
            return self._registry.encode(message).data.decode("utf-8", "replace")
        except (StagebellError, ValueError):
            return as_json_text(message) or "Message could not be serialized"
