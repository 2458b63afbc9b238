"""The stored state of agents: loaded when an agent appears here, written with the commit of each turn."""

from __future__ import annotations

import logging
from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING

from autogen_core import Agent, BaseAgent

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.options import saves_state
from stagebell.runtime.redis.wire import decode_state, register_replies

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services

logger = logging.getLogger("stagebell")

_BARE_ATTRIBUTES = frozenset({"_id", "_runtime", "_description", "_handlers"})


class Stored:
    """What is known of an agent's stored state.

    `version` counts the root commits sent, `data` is the state as last sent.
    """

    __slots__ = ("_under_way", "_waiters", "data", "keeps", "version")

    def __init__(self, keeps: bool) -> None:
        self.keeps = keeps
        self.version = 0
        self.data = b""
        self._under_way = 0
        self._waiters: list[Future[None]] = []

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
        activation.stored = Stored(keeps)
    return activation.stored


class DurableStorage:
    """Brings stored states into agents; see `engine.ports.Storage`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._warned: set[type] = set()
        self._known: set[type] = set()

    async def load(self, activation: Activation) -> None:
        """Load an agent's stored state, if there is one.

        Raises:
            MalformedState: what is stored cannot be read; it is left as it is.
            Exception: whatever the agent's `load_state` raised.
        """
        agent = activation.agent
        assert agent is not None
        if activation.hosted.agent_class is None and type(agent) not in self._known:
            self._known.add(type(agent))
            register_replies(self._services.wire.registry, type(agent))
        activation.stored = stored = Stored(saves_state(type(agent)))
        if not stored.keeps:
            self._warn_once(agent)
            return
        place = self._services.directory.place(activation.id)
        assert place is not None
        key = place.state(activation.id.key)
        version, data = await self._services.link.submit(lambda scripts: scripts.state(key))
        stored.version, stored.data = version, data
        if data:
            await agent.load_state(decode_state(activation.id, data))

    def _warn_once(self, agent: Agent) -> None:
        cls = type(agent)
        if cls in self._warned or not isinstance(agent, BaseAgent) or not vars(agent).keys() - _BARE_ATTRIBUTES:
            return
        self._warned.add(cls)
        logger.warning(
            "%s has attributes but no save_state of its own: what its agents remember ends with this worker", cls.__name__
        )
