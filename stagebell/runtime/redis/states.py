"""The states and the metadata of agents, wherever they live."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from autogen_core import Agent, AgentId, AgentMetadata, CancellationToken
from autogen_core.exceptions import NotAccessibleError

from stagebell.runtime.engine.outcome import RuntimeRequest
from stagebell.runtime.engine.snapshots import check_state, parse_snapshot, state_of
from stagebell.runtime.redis.control import Describe, LoadState, SaveState
from stagebell.runtime.redis.hosting import Hosting
from stagebell.runtime.redis.node import Node
from stagebell.runtime.redis.stored_states import StoredStates, saved_states

T = TypeVar("T", bound=Agent)

_ANY_AGENT: type[Any] = Agent


class States(Hosting):
    """Base of `RedisRuntime`: what AutoGen's protocol asks about agents."""

    @abstractmethod
    async def _send(
        self,
        node: Node,
        message: Any,
        recipient: AgentId,
        sender: AgentId | None,
        token: CancellationToken | None,
        message_id: str | None,
    ) -> Any: ...

    async def save_state(self) -> Mapping[str, Any]:
        """The state of every agent of the namespace: of those in memory here as it is now, of others as stored.

        It holds plain states, without types and versions, as AutoGen's runtime writes and reads them. Load it with the
        versions of the classes that it was taken with.

        Raises:
            StateMismatch: a stored state is of a version that its class, registered here, cannot read.
        """
        return await StoredStates(self._running("save_state")).save()

    async def saved_states(self, agent_type: str, key: str | None = None) -> Mapping[str, Mapping[str, Any]]:
        """The states of all agents of one type (or of one, with `key`), by their keys, as they were stored last.

        No worker is needed.

        Raises:
            MalformedState: one cannot be read.
        """
        services = self._running("saved_states").services
        return await saved_states(services.link, services.directory, agent_type, key)

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `save_state` gave, of any runtime; agents whose type nobody knows are left out.

        Each state is taken for one of the version that its class has now: no migrations are run.

        Raises:
            MalformedState: it is not such a mapping.
        """
        node = self._running("load_state")
        for agent, agent_state in parse_snapshot(state):
            if agent.type in self._catalog.types or agent.type in node.services.directory.types:
                await self.agent_load_state(agent, agent_state)

    async def agent_metadata(self, agent: AgentId) -> AgentMetadata:
        """What an agent says of itself, wherever it lives."""
        if self._is_here(agent):
            return (await self._agent(agent)).metadata
        found = await self._ask_agent(agent, Describe())
        return AgentMetadata(type=found["type"], key=found["key"], description=found["description"])

    async def agent_save_state(self, agent: AgentId) -> Mapping[str, Any]:
        """The state of one agent, wherever it lives, between two of its turns."""
        if self._is_here(agent):
            return await state_of(await self._agent(agent))
        state: Mapping[str, Any] = await self._ask_agent(agent, SaveState())
        return state

    async def agent_load_state(self, agent: AgentId, state: Mapping[str, Any]) -> None:
        """Load a state into one agent, wherever it lives, in a turn of its own; it is stored when this returns.

        It is taken for one of the version that the agent's class has now: no migrations are run.
        """
        check_state(agent, state)
        if self._is_here(agent):
            await (await self._agent(agent)).load_state(state)
        else:
            await self._ask_agent(agent, LoadState(state=dict(state)))

    async def _ask_agent(self, agent: AgentId, request: RuntimeRequest) -> Any:
        """Let the runtime that runs an agent answer; interventions are for messages of the application."""
        return await self._send(self._running(f"a request to {agent}"), request, agent, None, None, None)

    def _is_here(self, agent: AgentId) -> bool:
        """True for agents bound to this process."""
        hosted = self._catalog.types.get(agent.type)
        return hosted is not None and hosted.process_bound

    async def try_get_underlying_agent_instance(self, id: AgentId, type: type[T] = _ANY_AGENT) -> T:
        """The Python object of an agent of this process; for tests and inspection.

        Raises:
            UnknownAgentType: its type is not registered here.
            NotAccessibleError: another process runs the agent.
            TypeError: it is not a `type`.
        """
        hosted = self._catalog.hosted(id.type)
        activation = hosted.live.get(id.key)
        in_memory = activation is not None and activation.agent is not None
        if not in_memory and not hosted.process_bound and not await self._running("the instance").settle_ownership(id):
            raise NotAccessibleError(f"agent {id} lives in another process")
        return await super().try_get_underlying_agent_instance(id, type)
