"""The states of all agents of a namespace, wherever they live."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from autogen_core import AgentId

from stagebell.runtime.engine.snapshots import save_live
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Ask, Link
from stagebell.runtime.redis.node import Node
from stagebell.runtime.redis.wire import decode_state


class StoredStates:
    """Reads the stored states through one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def save(self) -> dict[str, Any]:
        """The state of every agent: of those in memory here as it is now, of the others as stored.

        Stored states of a class that is registered here come in the form that it reads now.

        Raises:
            StateMismatch: one is of a version that its class cannot read.
            MalformedState: one cannot be read at all.
        """
        directory = self._node.services.directory
        await directory.refresh_if_changed()
        partitions = [
            directory.partition(name, number)
            for name, entry in directory.types.items()
            for number in range(entry.partitions)
        ]
        stored = await asyncio.gather(*(self._stored(keys) for keys in partitions))
        states: dict[str, Any] = {agent: state for part in stored for agent, state in part.items()}
        states.update(await save_live(self._node.services.catalog))
        return states

    async def _stored(self, keys: LeasedKeys) -> dict[str, Mapping[str, Any]]:
        found = await _stored_in(self._node.services.link, keys)
        return {str(agent): self._read(agent, data) for agent, data in found}

    def _read(self, agent: AgentId, data: bytes) -> Mapping[str, Any]:
        stored = decode_state(agent, data)
        hosted = self._node.services.catalog.types.get(agent.type)
        form = hosted.state_form if hosted is not None else None
        # What a factory makes may be of a subclass, whose states have a type of their own: left as it is stored.
        return stored.state if form is None or form.type != stored.type else form.read(agent, stored)


async def saved_states(
    link: Link, directory: Directory, agent_type: str, key: str | None = None
) -> dict[str, Mapping[str, Any]]:
    """The stored states of the agents of one type, by their keys, as they are; with `key` that of one agent alone.

    Raises:
        MalformedState: one cannot be read.
        ServerUnavailable: there is no connection.
    """
    await directory.refresh_if_changed()
    entry = directory.types.get(agent_type)
    if key is not None:
        agent = AgentId(agent_type, key)
        place = directory.place(agent) if entry is not None else None
        data = (await link.submit(_state(place.state(key))))[1] if place is not None else b""
        return {key: decode_state(agent, data).state} if data else {}
    numbers = range(entry.partitions if entry is not None else 0)
    parts = await asyncio.gather(*(_stored_in(link, directory.partition(agent_type, number)) for number in numbers))
    return {agent.key: decode_state(agent, data).state for part in parts for agent, data in part}


async def _stored_in(link: Link, keys: LeasedKeys) -> list[tuple[AgentId, bytes]]:
    names = [name.decode() for name in await link.ask("SMEMBERS", keys.ids)]
    agents = [AgentId.from_str(name) for name in names]
    found = await asyncio.gather(*(link.submit(_state(keys.state(agent.key))) for agent in agents))
    return [(agent, data) for agent, (_, data) in zip(agents, found, strict=True) if data]


def _state(key: str) -> Ask[tuple[int, bytes]]:
    return lambda scripts: scripts.state(key)
