"""How an agent class wants to be run: decided on the class, since AutoGen's `register` forwards no options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast, get_args

from autogen_core import BaseAgent, ClosureAgent

from stagebell.runtime.engine.checked import FLAG, Kind, check_settings, named_settings, one_of
from stagebell.runtime.engine.retry import Retry

Concurrency = Literal["serial", "interleaved"]
Reentrancy = Literal["chain", "forbid"]
AgentClass = TypeVar("AgentClass", bound=type)

Interrupts = Mapping[type, "frozenset[type] | None"]

_ATTRIBUTE = "__stagebell_options__"
_SHORTLY = Retry()


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What `agent_options` was told.

    Attributes:
        concurrency: "serial" runs one turn at a time; "interleaved" lets turns overlap at each await.
        reentrancy: "chain" lets a call in that descends from a call the agent awaits; "forbid" refuses it.
        process_bound: the agent lives in the process that registered it and never moves.
        state_version: the version of the states that the class writes and reads.
        state_type: what they are called; empty for the name of the class.
        retry: how published messages are tried again; None: they are not.
        interrupted_by: classes of messages that interrupt, each with those of the messages that it ends; None: all.
        stateless: agents of the class may leave memory although they save nothing.
    """

    concurrency: Concurrency = "serial"
    reentrancy: Reentrancy = "chain"
    process_bound: bool = False
    state_version: int = 1
    state_type: str = ""
    retry: Retry | None = _SHORTLY
    interrupted_by: Interrupts = field(default_factory=dict[type, "frozenset[type] | None"])
    stateless: bool = False


@named_settings("agent_options")
def agent_options(
    *,
    concurrency: Concurrency = "serial",
    reentrancy: Reentrancy = "chain",
    process_bound: bool = False,
    state_version: int = 1,
    state_type: str | None = None,
    retry: Retry | None = _SHORTLY,
    interrupted_by: tuple[type, ...] | Mapping[type, tuple[type, ...]] = (),
    stateless: bool = False,
) -> Callable[[AgentClass], AgentClass]:
    """Class decorator that says how agents of the class are run.

    Args:
        concurrency: "serial" (default) runs one turn at a time; "interleaved" lets turns overlap at each await.
        reentrancy: "chain" (default) lets a call in that descends from a call the agent awaits; with "forbid" such a
            call ends in `CallCycleError`.
        process_bound: the agent lives in the process that registered it, in memory, and orders its own messages.
        state_version: the version of what `save_state` returns, from 1 on; see `migrates`.
        state_type: what stored states of the class are called, by default the name of the class; with the former
            name, a class that was renamed reads its old states.
        retry: how a published message whose handler raised is tried again on `RedisRuntime`; None: it goes to the dead
            letters at once, as it does for process-bound agents in any case. `LocalRuntime` tries nothing again.
        interrupted_by: classes of messages, not those derived from them. One that comes while the agent has a turn
            open cancels it: its caller gets `CancelledError`, a message that nobody waits for is gone. A mapping says
            for messages of which classes that holds, and includes those that still wait. For serial agents.
        stateless: what agents of the class remember may be lost at any time, so on `RedisRuntime` they leave memory
            when idle and move to other workers, although they have no `save_state`.

    Raises:
        InvalidSetting: there is no such option, or it does not take this value.
        ValueError: two options contradict each other, or the state has no name or version that it can have.
    """
    checked = {"concurrency": concurrency, "reentrancy": reentrancy, "process_bound": process_bound}
    check_settings({**checked, "retry": retry, "interrupted_by": interrupted_by, "stateless": stateless}, _KINDS)
    if state_type is not None and (not isinstance(cast(object, state_type), str) or not state_type.strip()):
        raise ValueError(f"state_type must be a name, got {state_type!r}")
    given = concurrency, reentrancy, process_bound, state_version, state_type or "", retry
    options = AgentOptions(*given, _interrupts(interrupted_by), stateless)
    _check(options)

    def decorate(cls: AgentClass) -> AgentClass:
        setattr(cls, _ATTRIBUTE, options)
        return cls

    return decorate


def _are_classes(value: Any) -> bool:
    if isinstance(value, Mapping):
        given = cast("Mapping[object, object]", value)
        return all(_are_classes(each) for each in (tuple(given), *given.values()))
    return isinstance(value, tuple) and all(isinstance(each, type) for each in cast("tuple[object, ...]", value))


_KINDS = {
    "concurrency": one_of(*get_args(Concurrency)),
    "reentrancy": one_of(*get_args(Reentrancy)),
    "process_bound": FLAG,
    "retry": Kind("a Retry, or None", lambda value: value is None or isinstance(value, Retry)),
    "interrupted_by": Kind("a tuple of message classes, or a mapping of a class to such a tuple", _are_classes),
    "stateless": FLAG,
}


def _interrupts(given: tuple[type, ...] | Mapping[type, tuple[type, ...]]) -> Interrupts:
    if not isinstance(given, Mapping):
        return dict.fromkeys(given)
    pairs = [(handled, each) for handled, by in given.items() for each in by]
    return {each: frozenset(handled for handled, other in pairs if other is each) for _, each in pairs}


def _check(options: AgentOptions) -> None:
    check_version(options.state_version, "state_version")
    if options.interrupted_by and (options.process_bound or options.concurrency != "serial"):
        raise ValueError("interrupted_by is for agents with one turn at a time: serial ones, not bound to a process")


def options_of(cls: type[Any] | None) -> AgentOptions:
    """The options of an agent class; AgentChat's containers and managers and closure agents are process-bound.

    Those close over local queues and order their own messages, and a pause must interrupt a running turn.
    """
    if cls is None:
        return AgentOptions()
    declared: object = getattr(cls, _ATTRIBUTE, None)
    if isinstance(declared, AgentOptions):
        if declared.process_bound:
            return replace(declared, concurrency="interleaved")
        return declared
    if issubclass(cls, ClosureAgent) or _belongs_to_agentchat(cls):
        return AgentOptions("interleaved", "chain", True)
    return AgentOptions()


def check_version(version: object, name: str) -> None:
    """Refuse what cannot be the version of a state.

    Raises:
        ValueError: it is no whole number from 1 on.
    """
    if not is_version(version):
        raise ValueError(f"{name} must be a whole number from 1 on, got {version!r}")


def is_version(value: object) -> bool:
    """True for what can be the version of a state."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def saves_state(cls: type) -> bool:
    """True when the class has a `save_state` of its own; one that has not is never asked for its state."""
    return getattr(cls, "save_state", None) is not BaseAgent.save_state


def _belongs_to_agentchat(cls: type[Any]) -> bool:
    return any(base.__module__.startswith("autogen_agentchat.teams.") for base in cls.__mro__)
