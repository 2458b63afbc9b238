"""Requests that the runtime answers itself, in the agent's own turn: ordered, durable, on any worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_core import Agent
from pydantic import BaseModel

from stagebell.messages.registry import TypeRegistry
from stagebell.runtime.engine.outcome import RuntimeRequest
from stagebell.runtime.engine.snapshots import load_into, state_of


class SaveState(RuntimeRequest, BaseModel):
    """Asks for an agent's state."""

    async def answer(self, agent: Agent) -> Mapping[str, Any]:
        """The state, as the agent's `save_state` gives it."""
        return await state_of(agent)


class LoadState(RuntimeRequest, BaseModel):
    """Loads a state into an agent; the turn's commit stores it."""

    state: dict[str, Any]

    async def answer(self, agent: Agent) -> None:
        """Nothing, once it is loaded."""
        await load_into(agent, self.state)


class Describe(RuntimeRequest, BaseModel):
    """Asks what an agent says of itself."""

    async def answer(self, agent: Agent) -> Mapping[str, Any]:
        """The agent's metadata."""
        return dict(agent.metadata)


def register_requests(registry: TypeRegistry) -> None:
    """Make the requests known, under names no message of a user has."""
    registry.add_type(SaveState, "stagebell.save_state")
    registry.add_type(LoadState, "stagebell.load_state")
    registry.add_type(Describe, "stagebell.describe")
