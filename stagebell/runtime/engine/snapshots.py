"""The state of many agents as one mapping `{"type/key": state}`, the form that AutoGen's runtime uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from autogen_core import Agent, AgentId

from stagebell.errors import MalformedState
from stagebell.runtime.engine.catalog import Catalog
from stagebell.runtime.engine.options import saves_state


class WrittenState(Mapping[str, Any]):
    """A state that is JSON text already, for agents that keep what was written before; read when somebody looks in.

    Args:
        text: a JSON object, as a runtime stores it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._read: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    @property
    def _fields(self) -> dict[str, Any]:
        if self._read is None:
            self._read = json.loads(self.text)
        return cast("dict[str, Any]", self._read)


def as_text(value: Any) -> str:
    """JSON data as a runtime stores it. Raises TypeError, ValueError or RecursionError for what is none."""
    return _json.encode(value)


_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


async def state_of(agent: Agent) -> dict[str, Any]:
    """The state of one agent; empty for a class that has no `save_state` of its own.

    Raises:
        MalformedState: what `save_state` returned is no mapping.
        Exception: whatever it raised.
    """
    if not saves_state(type(agent)):
        return {}
    state = await agent.save_state()
    check_state(agent.id, state)
    return dict(state)


async def load_into(agent: Agent, state: Mapping[str, Any]) -> None:
    """Load a state into an agent; one that saves none is left alone when there is nothing to load.

    Raises:
        MalformedState: it is no mapping.
        Exception: whatever the agent's `load_state` raised.
    """
    check_state(agent.id, state)
    if state or saves_state(type(agent)):
        await agent.load_state(state)


async def bring_back(agent: Agent, state: Mapping[str, Any]) -> None:
    """Load into an agent a state that its runtime has kept, together with the messages that left with it.

    A class that has to tell this from any other state has a `restore_state` beside its `load_state`.
    """
    restore = getattr(agent, "restore_state", agent.load_state)
    await restore(state)


def check_state(agent: AgentId, state: Mapping[str, Any]) -> None:
    """Refuse what cannot be a state.

    Raises:
        MalformedState: it is no mapping.
    """
    if type(state) is not dict and not isinstance(cast(object, state), Mapping):
        raise MalformedState(agent, f"expected a mapping, got {type(state).__name__}")


async def save_live(catalog: Catalog) -> dict[str, dict[str, Any]]:
    """The state of every agent in memory, as it is now."""
    return {str(activation.id): await state_of(agent) for activation, agent in catalog.live_agents()}


def parse_snapshot(snapshot: Mapping[str, Any]) -> list[tuple[AgentId, Mapping[str, Any]]]:
    """The agents and states of a snapshot.

    Raises:
        MalformedState: it is not a mapping of "type/key" to mappings.
    """
    parsed: list[tuple[AgentId, Mapping[str, Any]]] = []
    if not isinstance(cast(object, snapshot), Mapping):
        raise MalformedState("a runtime", f"expected a mapping of 'type/key' to states, got {type(snapshot).__name__}")
    for name, state in snapshot.items():
        if not isinstance(cast(object, name), str):
            raise MalformedState(repr(name), "expected 'type/key'")
        if not isinstance(state, Mapping):
            raise MalformedState(name, f"expected a mapping, got {type(state).__name__}")
        try:
            agent = AgentId.from_str(name)
        except ValueError as error:
            raise MalformedState(name, str(error)) from None
        parsed.append((agent, cast("Mapping[str, Any]", state)))
    return parsed
