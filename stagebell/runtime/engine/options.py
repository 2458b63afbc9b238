"""How an agent class wants to be run: decided on the class, since AutoGen's `register` forwards no options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from autogen_core import BaseAgent, ClosureAgent

Concurrency = Literal["serial", "interleaved"]
Reentrancy = Literal["chain", "forbid"]
AgentClass = TypeVar("AgentClass", bound=type)

_ATTRIBUTE = "__stagebell_options__"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What `agent_options` was told.

    Attributes:
        concurrency: "serial" runs one turn at a time; "interleaved" lets turns overlap at each await.
        reentrancy: "chain" lets a call in that descends from a call the agent awaits; "forbid" refuses it.
        process_bound: the agent lives in the process that registered it and never moves.
    """

    concurrency: Concurrency = "serial"
    reentrancy: Reentrancy = "chain"
    process_bound: bool = False


def agent_options(
    *, concurrency: Concurrency = "serial", reentrancy: Reentrancy = "chain", process_bound: bool = False
) -> Callable[[AgentClass], AgentClass]:
    """Class decorator that says how agents of the class are run.

    Args:
        concurrency: "serial" (default) runs one turn at a time; "interleaved" lets turns overlap at each await.
        reentrancy: "chain" (default) lets a call in that descends from a call the agent awaits; with "forbid" such a
            call ends in `CallCycleError`.
        process_bound: the agent lives in the process that registered it, in memory, and orders its own messages.

    Returns:
        The decorator; it returns the class it was given.

    Raises:
        ValueError: an option has another value than those.
    """
    if concurrency not in get_args(Concurrency):
        raise ValueError(f"concurrency must be one of {get_args(Concurrency)}, got {concurrency!r}")
    if reentrancy not in get_args(Reentrancy):
        raise ValueError(f"reentrancy must be one of {get_args(Reentrancy)}, got {reentrancy!r}")
    options = AgentOptions(concurrency, reentrancy, process_bound)

    def decorate(cls: AgentClass) -> AgentClass:
        setattr(cls, _ATTRIBUTE, options)
        return cls

    return decorate


def options_of(cls: type[Any] | None) -> AgentOptions:
    """The options of an agent class; AgentChat's containers and managers and closure agents are process-bound.

    Those close over local queues and order their own messages, and a pause must interrupt a running turn.
    """
    if cls is None:
        return AgentOptions()
    declared: object = getattr(cls, _ATTRIBUTE, None)
    if isinstance(declared, AgentOptions):
        if declared.process_bound:
            return AgentOptions("interleaved", declared.reentrancy, True)
        return declared
    if issubclass(cls, ClosureAgent) or _belongs_to_agentchat(cls):
        return AgentOptions("interleaved", "chain", True)
    return AgentOptions()


def saves_state(cls: type) -> bool:
    """True when the class has a `save_state` of its own; one that has not is never asked for its state."""
    return getattr(cls, "save_state", None) is not BaseAgent.save_state


def _belongs_to_agentchat(cls: type[Any]) -> bool:
    return any(base.__module__.startswith("autogen_agentchat.teams.") for base in cls.__mro__)
