"""Errors of what travels and of what is stored: messages, their types, and the states of agents."""

from __future__ import annotations

from autogen_core import AgentId

from stagebell.errors.base import StagebellError


class MessageError(StagebellError, ValueError):
    """Something is wrong with a message or its type."""


class UnregisteredType(MessageError):
    """The type of a message is not known here."""

    def __init__(self, type_name: str, why: str = "") -> None:
        super().__init__(
            f"message type {type_name!r} is not registered here{f' ({why})' if why else ''}: register an agent that "
            "handles it, or make the type known (runtime.add_message_serializer, publisher.register)"
        )
        self.type_name = type_name
        self.why = why


class TypeConflict(MessageError):
    """Two classes under one wire name."""

    def __init__(self, type_name: str, first: type, second: type) -> None:
        names = " and ".join(f"{c.__module__}.{c.__qualname__}" for c in (first, second))
        super().__init__(f"{names} would both travel as {type_name!r}: rename one of them")
        self.type_name = type_name
        self.first = first
        self.second = second


class MalformedMessage(MessageError):
    """The bytes are not what the type asks for."""

    def __init__(self, type_name: str, reason: str) -> None:
        super().__init__(f"malformed message of type {type_name!r}: {reason}")
        self.type_name = type_name
        self.reason = reason


class UnknownVersion(MessageError):
    """A newer program wrote the message; `version` is its major version of the wire format."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the message has version {version} of the wire format, unknown to this program: update it")
        self.version = version


class MessageTooLarge(MessageError):
    """The message is larger than the limit (both in bytes)."""

    def __init__(self, type_name: str, size: int, limit: int) -> None:
        super().__init__(
            f"a message of type {type_name!r} has {size:,} bytes, the limit is {limit:,}: "
            "send a reference to the data, or raise max_message_bytes"
        )
        self.type_name = type_name
        self.size = size
        self.limit = limit


class StateTooLarge(MessageError):
    """The state of an agent is larger than the limit (both in bytes)."""

    def __init__(self, agent: AgentId | str, size: int, limit: int) -> None:
        super().__init__(
            f"the state of {agent} has {size:,} bytes, the limit is {limit:,}: "
            "keep less in it, or raise max_state_bytes"
        )
        self.agent = str(agent)
        self.size = size
        self.limit = limit


class MalformedState(MessageError):
    """A state cannot be stored or read."""

    def __init__(self, agent: AgentId | str, reason: str) -> None:
        super().__init__(f"the state of {agent} cannot be used: {reason}")
        self.agent = str(agent)
        self.reason = reason


class StateMismatch(MessageError):
    """A stored state is of another type or version than the agent's class, which cannot read it.

    `stored_type` and `stored_version` are those of the state, `type` and `version` those that the class reads.
    """

    def __init__(self, agent: AgentId | str, stored: tuple[str, int], expected: tuple[str, int], reason: str) -> None:
        super().__init__(
            f"the stored state of {agent} is of type {stored[0]!r} and version {stored[1]}, "
            f"its class reads type {expected[0]!r} and version {expected[1]}: {reason}"
        )
        self.agent = str(agent)
        self.stored_type, self.stored_version = stored
        self.type, self.version = expected
        self.reason = reason
