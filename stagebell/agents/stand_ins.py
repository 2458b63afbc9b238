"""What stands in for the model and the dependencies of an agent type while a test says so, and who listens to requests.

Agents are made by factories, and their turns run in contexts of their own: so what a test says holds for the process,
by the type of the agent. `stagebell.testing` (`override`, `capture_messages`) is the door to this for users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage
from autogen_core.tools import Tool, ToolSchema

UNCHANGED: Final = object()
"""In the place of dependencies: those of the agent."""


@dataclass(frozen=True, slots=True, eq=False)
class StandIn:
    """What an agent type gets instead of its own; None and UNCHANGED leave its own."""

    agent_type: str
    model: ChatCompletionClient | None
    deps: Any


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to a model and what came of it.

    Attributes:
        agent: which agent asked, as ``type/key``.
        run_id: in which run.
        messages: what the model was sent.
        tools: what it could call.
        answer: what it answered; None when it raised.
        error: what it raised.
    """

    agent: str
    run_id: str
    messages: Sequence[LLMMessage]
    tools: Sequence[Tool | ToolSchema]
    answer: CreateResult | None
    error: BaseException | None = None


_stand_ins: list[StandIn] = []
_listeners: list[list[Exchange]] = []


def put_in(stand_in: StandIn) -> None:
    """From now on it stands in, before those that came earlier."""
    _stand_ins.append(stand_in)


def take_out(stand_in: StandIn) -> None:
    """No longer; the others stay, in whatever order they are taken out."""
    _stand_ins.remove(stand_in)


def model_for(agent_type: str, own: ChatCompletionClient) -> ChatCompletionClient:
    """The model that an agent of this type asks."""
    for stand_in in reversed(_stand_ins):
        if stand_in.agent_type == agent_type and stand_in.model is not None:
            return stand_in.model
    return own


def deps_for(agent_type: str) -> Any:
    """What stands in for the dependencies of an agent of this type; UNCHANGED when nothing does."""
    for stand_in in reversed(_stand_ins):
        if stand_in.agent_type == agent_type and stand_in.deps is not UNCHANGED:
            return stand_in.deps
    return UNCHANGED


def listen(exchanges: list[Exchange]) -> None:
    """From now on every exchange is added to this list."""
    _listeners.append(exchanges)


def stop_listening(exchanges: list[Exchange]) -> None:
    """No longer."""
    _listeners[:] = [other for other in _listeners if other is not exchanges]


def listened() -> bool:
    """True when somebody listens."""
    return bool(_listeners)


def tell_listeners(exchange: Exchange) -> None:
    """A model was asked."""
    for exchanges in _listeners:
        exchanges.append(exchange)
