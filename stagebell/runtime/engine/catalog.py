"""The agent types of a runtime: how their agents are made, and those that are in memory."""

from __future__ import annotations

import inspect
import logging
import warnings
from asyncio import get_running_loop, wait
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

from autogen_core import Agent, AgentId, AgentInstantiationContext, AgentRuntime
from autogen_core.logging import AgentConstructionExceptionEvent

from stagebell.errors import AlreadyRegistered, UnknownAgentType
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.clock import Clock, SystemClock
from stagebell.runtime.engine.deferred import RepliesInMemory
from stagebell.runtime.engine.events import event_logger
from stagebell.runtime.engine.migrations import StateForm, state_form
from stagebell.runtime.engine.options import options_of
from stagebell.runtime.engine.ports import LaterReplies, Storage
from stagebell.runtime.engine.retiring import close_agent, close_logged

logger = logging.getLogger("autogen_core")

_METHODS = ("on_message", "save_state", "load_state", "close")

Factory = Callable[..., Agent | Awaitable[Agent]]


class HostedType:
    """An agent type that this process can run."""

    later: LaterReplies
    clock: Clock = SystemClock()

    def __init__(self, name: str, factory: Factory | None, expected_class: type | None) -> None:
        options = options_of(expected_class)
        self.name = name
        self.factory = factory  # None: its agents were registered one by one
        self.parameters = _count_parameters(factory)
        self.agent_class = expected_class
        self.state_form: StateForm | None = None if expected_class is None else state_form(expected_class)
        self.process_bound = options.process_bound or factory is None
        self.interleaved = options.concurrency == "interleaved" or factory is None
        self.retry = None if self.process_bound else options.retry
        self.interrupted_by = options.interrupted_by
        self.reentrant = options.reentrancy == "chain"
        self.storage: Storage | None = None
        self.live: dict[str, Activation] = {}

    def class_of(self, agent: AgentId) -> type | None:
        """The class of an agent, as far as it is known."""
        activation = self.live.get(agent.key)
        made = None if activation is None else activation.agent
        return self.agent_class if made is None else type(made)

    def activation(self, agent: AgentId) -> Activation:
        """The activation of an agent, made (still without an instance) when there is none."""
        activation = self.live.get(agent.key)
        if activation is None:
            activation = self.live[agent.key] = Activation(self, agent)
        return activation


class Catalog:
    """All agent types of one runtime; `later` keeps the calls to agents in memory whose replies come later."""

    def __init__(self, runtime: AgentRuntime, later: RepliesInMemory, clock: Clock) -> None:
        self._runtime = runtime
        self.later = later
        self._clock = clock
        self.types: dict[str, HostedType] = {}

    def add_factory(self, name: str, factory: Factory, expected_class: type | None) -> HostedType:
        """Register how agents of a type are made.

        Raises:
            AlreadyRegistered: the type exists.
            MigrationError: the migrations of its class cannot be used.
        """
        if name in self.types:
            raise AlreadyRegistered(
                f"agent type {name!r} already exists in this runtime: give the second one another name"
            )
        hosted = self.types[name] = HostedType(name, factory, expected_class)
        hosted.later = self.later
        hosted.clock = self._clock
        return hosted

    async def add_instance(self, instance: Agent, id: AgentId) -> HostedType:
        """Register one agent that exists already.

        Raises:
            AlreadyRegistered: the agent exists, or its type is one of factories or of another class.
            MigrationError: the migrations of its class cannot be used.
        """
        hosted = self.types.get(id.type)
        if hosted is None:
            hosted = HostedType(id.type, None, type(instance))
            hosted.later = self.later
            hosted.clock = self._clock
        elif id.key in hosted.live:
            raise AlreadyRegistered(f"agent {id} already exists in this runtime")
        elif hosted.factory is not None:
            raise AlreadyRegistered(f"agent type {id.type!r} has a factory: its agents cannot be registered one by one")
        elif hosted.agent_class is not type(instance):
            raise AlreadyRegistered(f"all agents registered one by one as {id.type!r} must be of the same class")
        await instance.bind_id_and_runtime(id=id, runtime=self._runtime)
        self.types[id.type] = hosted
        hosted.activation(id).agent = instance
        return hosted

    def hosted(self, name: str) -> HostedType:
        """The type of this name.

        Raises:
            UnknownAgentType: it is not registered here.
        """
        hosted = self.types.get(name)
        if hosted is None:
            raise UnknownAgentType(name)
        return hosted

    def every_activation(self) -> Iterator[Activation]:
        """Every activation, with an instance or without."""
        for hosted in list(self.types.values()):
            yield from list(hosted.live.values())

    def live_agents(self) -> Iterator[tuple[Activation, Agent]]:
        """Every agent in memory."""
        for activation in self.every_activation():
            if activation.agent is not None:
                yield activation, activation.agent

    async def agent_of(self, activation: Activation) -> Agent:
        """The instance of an activation, made when there is none.

        Raises:
            Exception: whatever the factory or the loading of its state raised.
        """
        while activation.making is not None:
            await wait([activation.making])  # not `await making`: a waiter that gives up would cancel it for all
            activation = activation.hosted.activation(activation.id)  # the former may have left with its instance
        if activation.agent is not None:
            return activation.agent
        activation.making = made = get_running_loop().create_future()
        try:
            return await self._made_and_loaded(activation)
        finally:
            activation.making = None
            made.set_result(None)

    async def _made_and_loaded(self, activation: Activation) -> Agent:
        activation.agent = agent = await self.make(activation.hosted, activation.id)
        try:
            if activation.hosted.storage is not None:
                await activation.hosted.storage.load(activation)
            return agent
        except BaseException:
            if activation.agent is agent:
                activation.agent = None
            raise
        finally:
            if activation.agent is not agent and not activation.closed:  # nobody will use it; see `retiring`
                await close_logged(activation.id, agent)

    async def close(self) -> None:
        """Close every agent, once, and forget it. Instances registered one by one are kept.

        Raises:
            Exception: what the first agent that could not close raised, after all others were closed. What further
                ones raised is logged.
        """
        first: Exception | None = None
        for activation, agent in list(self.live_agents()):
            if activation.hosted.factory is not None:
                activation.hosted.live.pop(activation.id.key, None)
                activation.agent = None
            elif activation.closed:
                continue
            activation.closed = True
            try:
                await close_agent(agent)
            except Exception as error:
                if first is not None:
                    logger.exception("%s could not be closed either", activation.id)
                first = first or error
        if first is not None:
            raise first

    async def make(self, hosted: HostedType, id: AgentId) -> Agent:
        """A new instance of an agent, which the catalog does not keep.

        Raises:
            Exception: whatever the factory raised.
        """
        with AgentInstantiationContext.populate_context((self._runtime, id)):
            try:
                agent = await _invoke(_factory_of(hosted), hosted.parameters, self._runtime, id)
                if not _is_agent(agent):
                    made = f"the factory of agent type {hosted.name!r} returned {agent!r:.80}"
                    raise TypeError(f"{made}, which is no Agent: let it return one")
                if hosted.agent_class is not None and not isinstance(agent, hosted.agent_class):
                    raise ValueError(
                        f"the factory of agent type {hosted.name!r} was registered for {hosted.agent_class.__name__} "
                        f"and made a {type(agent).__name__}"
                    )
            except BaseException as error:
                event_logger.info(AgentConstructionExceptionEvent(agent_id=id, exception=error))
                logger.exception("Error constructing agent %s", id)
                raise
        return agent


def _factory_of(hosted: HostedType) -> Factory:
    if hosted.factory is None:
        raise RuntimeError(
            f"no agent of type {hosted.name!r} was registered under this key, and agents registered one by one are "
            "never made: check the subscriptions of the type (skip_class_subscriptions)"
        )
    return hosted.factory


def _is_agent(made: object) -> bool:
    # Not isinstance(made, Agent): that would run the properties of the agent.
    return not isinstance(made, type) and all(hasattr(type(made), name) for name in _METHODS)


def _count_parameters(factory: Factory | None) -> int:
    if factory is None:
        return 0
    parameters = len(inspect.signature(factory).parameters)
    if parameters not in (0, 2):
        raise ValueError(f"an agent factory takes no argument (or, deprecated, two); this one takes {parameters}")
    return parameters


async def _invoke(factory: Factory, parameters: int, runtime: AgentRuntime, id: AgentId) -> Agent:
    if parameters == 0:
        made = factory()
    else:
        warnings.warn("agent factories with two arguments are deprecated: use AgentInstantiationContext", stacklevel=2)
        made = factory(runtime, id)
    if inspect.isawaitable(made):
        return cast(Agent, await cast(Awaitable[Any], made))
    return made
