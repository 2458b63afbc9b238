"""The stored state of agents: loaded when an agent appears here, written with the commit of each turn."""

from __future__ import annotations

import logging
from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING

from autogen_core import Agent, AgentId, BaseAgent

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.migrations import StateForm, state_form
from stagebell.runtime.engine.options import options_of, saves_state
from stagebell.runtime.engine.snapshots import bring_back
from stagebell.runtime.redis.wire import decode_state, register_replies

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services

logger = logging.getLogger("stagebell")

_BARE_ATTRIBUTES = frozenset({"_id", "_runtime", "_description", "_handlers"})


class Stored:
    """What is known of an agent's stored state.

    `keeps`: it has one; `may_leave`: the agent may leave memory. `version` counts the root commits sent, `data` is the
    state as last sent, `form` is how the agent's class writes it (known of every agent that was loaded).
    """

    __slots__ = ("_under_way", "_waiters", "data", "form", "keeps", "may_leave", "version")

    def __init__(self, keeps: bool, form: StateForm | None, *, stateless: bool = False) -> None:
        self.keeps = keeps
        self.may_leave = keeps or stateless
        self.form = form
        self.version = 0
        self.data = b""
        self._under_way = 0
        self._waiters: list[Future[None]] = []

    @property
    def under_way(self) -> bool:
        """True while a commit was not answered."""
        return self._under_way > 0

    def sent(self, state: bytes) -> None:
        """A commit with this state (empty: unchanged) was sent; the next turn starts from it."""
        self.version += 1
        self.data = state or self.data
        self._under_way += 1

    def answered(self) -> None:
        """A commit was answered."""
        self._under_way -= 1
        if not self._under_way:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def settled(self) -> None:
        """Wait until every commit that was sent is answered."""
        while self._under_way:
            waiter: Future[None] = get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter


def stored_of(activation: Activation) -> Stored:
    """What is known of an agent's stored state; nothing yet for one that was never loaded."""
    if not isinstance(activation.stored, Stored):
        cls = activation.hosted.agent_class if activation.agent is None else type(activation.agent)
        keeps = cls is not None and saves_state(cls) and not activation.hosted.process_bound
        activation.stored = Stored(keeps, activation.hosted.state_form, stateless=options_of(cls).stateless)
    return activation.stored


class DurableStorage:
    """Brings stored states into agents; see `engine.ports.Storage`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[type, StateForm] = {}

    async def load(self, activation: Activation) -> None:
        """Load an agent's stored state, if there is one.

        Raises:
            MalformedState: what is stored cannot be read, and is left as it is; or the state of a new agent of this
                class could not be stored.
            StateMismatch: what is stored is of a type or version that the agent's class does not read.
            MigrationError: the migrations of the class cannot be used.
            Exception: whatever the agent's `load_state` or `save_state` raised.
        """
        agent = activation.agent
        assert agent is not None
        if isinstance(
            activation.stored, Stored
        ):  # of the instance before: what it committed last may still have to leave
            await activation.stored.settled()
        keeps = saves_state(type(agent))
        form = self._known.get(type(agent)) or await self._meet(activation.id, agent, keeps=keeps)
        stateless = options_of(type(agent)).stateless
        activation.stored = stored = Stored(keeps, form, stateless=stateless)
        if stored.may_leave:
            self._services.passivation.loaded(activation)
        if not keeps:
            return
        place = self._services.directory.place(activation.id)
        assert place is not None
        key = place.state(activation.id.key)
        version, data = await self._services.link.submit(lambda scripts: scripts.state(key))
        stored.version, stored.data = version, data
        if data:
            await bring_back(agent, form.read(activation.id, decode_state(activation.id, data)))

    async def _meet(self, id: AgentId, agent: Agent, *, keeps: bool) -> StateForm:
        """The first agent of its class: find out before its first message what could not be kept after it."""
        form = state_form(type(agent))
        register_replies(self._services.wire.registry, type(agent))
        if keeps:
            self._services.wire.encode_state(id, form, await agent.save_state())
        elif isinstance(agent, BaseAgent) and not options_of(type(agent)).stateless and _remembers(agent):
            logger.warning(
                "%s has attributes but no save_state of its own: what its agents remember ends with this worker",
                type(agent).__name__,
            )
        self._known[type(agent)] = form
        return form


def _remembers(agent: BaseAgent) -> bool:
    return bool(vars(agent).keys() - _BARE_ATTRIBUTES)
