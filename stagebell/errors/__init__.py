"""Every error a user can meet, in one tree.

    StagebellError
    ├── InvalidSetting        (also ValueError, TypeError)    no such setting, or it does not take this value
    ├── WrongType             (also TypeError)                an object of another type is due here
    ├── Undeliverable         (also UndeliverableException)   nobody hosts the agent's type
    ├── CantHandle            (also CantHandleException)      the agent has no handler for the message
    ├── DeadLettered          the message was set aside and will not be answered
    ├── UnknownDeadLetter     (also LookupError)              it is not there, or not any more
    ├── CallCycleError        agents wait for each other in a circle
    ├── CallDepthExceeded     a chain of calls is longer than the limit
    ├── HopLimitExceeded      one message led to more others than its limit of hops allows
    ├── DeadlineExceeded      (also TimeoutError)             the deadline was over before the answer came
    ├── RuntimeNotRunning     (also RuntimeError)             the runtime was stopped or not started
    ├── RemoteHandlerError    a handler elsewhere raised an exception whose class is not loaded here
    ├── NonDeterministicReplay a turn that ran again made other calls than before
    ├── OutsideTurn           (also RuntimeError)             this can be done only while a message is handled
    ├── DeferredReplyError    (also RuntimeError)             a reply cannot be deferred, or given, here
    │   └── AlreadyAnswered   the call was answered before, or nobody knows of it
    ├── UnknownAgentType      (also LookupError)              no such agent type in this runtime
    ├── AlreadyRegistered     (also ValueError)               the agent type or agent exists
    ├── SubscriptionError     (also ValueError)               it exists, is unknown, or cannot be stored
    ├── MigrationError        (also ValueError)               the migrations of an agent class cannot be used
    ├── ToolRefused           (also ValueError)               a tool cannot be registered as it is
    ├── ToolError             what a tool raises to say what kind of failure it was; its text goes to the model
    │   ├── InvalidArguments  (also ValueError)               the arguments are not what the tool takes
    │   ├── Denied            (also PermissionError)          whoever asked may not do this
    │   ├── BusinessError     the rules of the business forbid it
    │   ├── TransientError    it may go well another time, and nothing has happened yet
    │   └── FatalToolError    the run cannot go on
    ├── UnknownApproval       (also LookupError)              nobody has asked for it, or it is over for long
    ├── AlreadyDecided        somebody has decided on it before
    ├── SnapshotConflict      a conversation was saved by somebody else meanwhile
    ├── SnapshotBroken        (also ValueError)               a stored conversation cannot be read
    ├── StoreUnusable         (also OSError)                  the place of stored conversations cannot be used
    ├── UnknownRun            (also LookupError)              no run of this id in its conversation
    ├── UnknownQuestion       (also LookupError)              a run does not wait for this answer
    ├── RunFailed             a run ended without an output, and somebody asked for that
    ├── OutputRejected        what a validator raises when an output is not good enough; the model is told why
    ├── MessageError          (also ValueError)
    │   ├── UnregisteredType  the type of a message is not known here
    │   ├── TypeConflict      two classes under one wire name
    │   ├── MalformedMessage  the bytes are not what the type asks for
    │   ├── UnknownVersion    a newer program wrote the message
    │   ├── MessageTooLarge   the message is larger than the limit
    │   ├── StateTooLarge     the state of an agent is larger than the limit
    │   ├── MalformedState    a state cannot be stored or read
    │   └── StateMismatch     a stored state is of another type or version than the agent's class
    └── ServerError
        ├── ServerUnavailable (also ConnectionError)          the server cannot be reached
        ├── ServerNotFound    (also FileNotFoundError)        no server program on this machine
        ├── ServerRefused     the server answered a command with an error
        ├── OutcomeUnknown    a send was interrupted and may or may not have arrived
        └── Busy              an inbox is full

Each error carries what it knows as attributes; the text says what happened, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from autogen_core import AgentId
from autogen_core.exceptions import CantHandleException, UndeliverableException

from stagebell.errors.base import StagebellError
from stagebell.errors.given import InvalidSetting, WrongType
from stagebell.errors.messages import (
    MalformedMessage,
    MalformedState,
    MessageError,
    MessageTooLarge,
    StateMismatch,
    StateTooLarge,
    TypeConflict,
    UnknownVersion,
    UnregisteredType,
)
from stagebell.errors.work import (
    AlreadyDecided,
    BusinessError,
    Denied,
    FatalToolError,
    InvalidArguments,
    OutputRejected,
    RunFailed,
    SnapshotBroken,
    SnapshotConflict,
    StoreUnusable,
    ToolError,
    ToolRefused,
    TransientError,
    UnknownApproval,
    UnknownQuestion,
    UnknownRun,
)

__all__ = [
    "AlreadyAnswered",
    "AlreadyDecided",
    "AlreadyRegistered",
    "BusinessError",
    "Busy",
    "CallCycleError",
    "CallDepthExceeded",
    "CantHandle",
    "DeadLettered",
    "DeadlineExceeded",
    "DeferredReplyError",
    "Denied",
    "FatalToolError",
    "HopLimitExceeded",
    "InvalidArguments",
    "InvalidSetting",
    "MalformedMessage",
    "MalformedState",
    "MessageError",
    "MessageTooLarge",
    "MigrationError",
    "NonDeterministicReplay",
    "OutcomeUnknown",
    "OutputRejected",
    "OutsideTurn",
    "RemoteHandlerError",
    "RunFailed",
    "RuntimeNotRunning",
    "ServerError",
    "ServerNotFound",
    "ServerRefused",
    "ServerUnavailable",
    "SnapshotBroken",
    "SnapshotConflict",
    "StagebellError",
    "StateMismatch",
    "StateTooLarge",
    "StoreUnusable",
    "SubscriptionError",
    "ToolError",
    "ToolRefused",
    "TransientError",
    "TypeConflict",
    "Undeliverable",
    "UnknownAgentType",
    "UnknownApproval",
    "UnknownDeadLetter",
    "UnknownQuestion",
    "UnknownRun",
    "UnknownVersion",
    "UnregisteredType",
    "WrongType",
]


class Undeliverable(StagebellError, UndeliverableException):
    """Nobody hosts the agent's type."""

    def __init__(self, recipient: AgentId | str, reason: str) -> None:
        super().__init__(f"cannot deliver to {recipient}: {reason}")
        self.recipient = str(recipient)
        self.reason = reason


class CantHandle(StagebellError, CantHandleException):
    """The agent has no handler for the message."""

    def __init__(self, recipient: AgentId | str, message_type: str) -> None:
        super().__init__(
            f"{recipient} has no handler for a call with {message_type}: "
            f"add a method with @message_handler or @rpc that takes {message_type}"
        )
        self.recipient = str(recipient)
        self.message_type = message_type


class DeadLettered(StagebellError):
    """The message was set aside and will not be answered."""

    def __init__(self, recipient: AgentId | str, message_id: str, reason: str) -> None:
        super().__init__(f"message {message_id} to {recipient} went to the dead letters: {reason}")
        self.recipient = str(recipient)
        self.message_id = message_id
        self.reason = reason


class UnknownDeadLetter(StagebellError, LookupError):
    """A dead letter is not there, or not any more."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no dead letter {id!r}: perhaps it was requeued or discarded meanwhile")
        self.id = id


class CallCycleError(StagebellError):
    """Agents wait for each other in a circle; `cycle` names them, the first one again at the end."""

    def __init__(self, cycle: Sequence[AgentId | str]) -> None:
        path = " → ".join(str(agent) for agent in cycle)
        super().__init__(
            f"the call would never be answered, its agents wait for each other: {path}. "
            "Publish instead of calling on one of these edges"
        )
        self.cycle = [str(agent) for agent in cycle]


class CallDepthExceeded(StagebellError):
    """A chain of calls is longer than the limit."""

    def __init__(self, recipient: AgentId | str, depth: int, limit: int) -> None:
        super().__init__(
            f"the call to {recipient} is number {depth} in a chain of calls, the limit is {limit}: "
            "agents probably call each other without end"
        )
        self.recipient = str(recipient)
        self.depth = depth
        self.limit = limit


class HopLimitExceeded(StagebellError):
    """One message led to more others than its limit of hops allows."""

    def __init__(self, recipient: str) -> None:
        super().__init__(
            f"the message to {recipient} is one hop more than the limit around the first message of its chain allows: "
            "agents probably send to each other without end; if not, raise the `hop_limit`"
        )
        self.recipient = recipient


class DeadlineExceeded(StagebellError, TimeoutError):
    """The deadline was over before the answer came; `deadline` is in milliseconds since the epoch."""

    def __init__(self, recipient: AgentId | str, deadline: int) -> None:
        at = datetime.fromtimestamp(deadline / 1000, UTC).isoformat(timespec="milliseconds")
        super().__init__(
            f"{recipient} did not answer by the deadline, {at}: what it had begun is given up. "
            "Give it more time, or find out what it waited for"
        )
        self.recipient = str(recipient)
        self.deadline = deadline


class RuntimeNotRunning(StagebellError, RuntimeError):
    """The runtime was stopped or not started."""


class RemoteHandlerError(StagebellError):
    """A handler elsewhere raised an exception whose class is not loaded here.

    `type_name` is the class as module:name, `text` its message, `remote_traceback` the traceback as text.
    """

    def __init__(self, type_name: str, text: str, remote_traceback: str = "") -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text
        self.remote_traceback = remote_traceback


class NonDeterministicReplay(StagebellError):
    """A turn that ran again made other calls than before."""

    def __init__(self, agent: AgentId | str, call: str) -> None:
        super().__init__(
            f"the turn of {agent} ran again after a crash and its call number {call} went to another agent or had "
            "another type than the first time: make the order of calls depend on the message and the state alone"
        )
        self.agent = str(agent)
        self.call = call


class OutsideTurn(StagebellError, RuntimeError):
    """This can be done only while a message is handled."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}() was called where no message is being handled, or after its turn has ended: call it from the "
            "handler of an agent, and await it there"
        )
        self.what = what


class DeferredReplyError(StagebellError, RuntimeError):
    """A reply cannot be deferred, or given, here."""


class AlreadyAnswered(DeferredReplyError):
    """The call was answered before, or nobody knows of it; `id` is that of its handle."""

    def __init__(self, agent: AgentId | str, id: str) -> None:
        super().__init__(
            f"{agent} cannot answer call {id}: it was answered before, or nobody knows of it (the turn that deferred "
            "its reply failed, or has not ended yet)"
        )
        self.agent = str(agent)
        self.id = id


class UnknownAgentType(StagebellError, LookupError):
    """No such agent type in this runtime."""

    def __init__(self, agent_type: str) -> None:
        super().__init__(f"agent type {agent_type!r} is not registered in this runtime: register it first")
        self.agent_type = agent_type


class AlreadyRegistered(StagebellError, ValueError):
    """The agent type or agent exists."""


class SubscriptionError(StagebellError, ValueError):
    """The subscription exists already, is unknown, or is of a class that cannot be stored."""


class MigrationError(StagebellError, ValueError):
    """The migrations of an agent class cannot be used; `class_name` is module and name of the class."""

    def __init__(self, cls: type, reason: str) -> None:
        super().__init__(f"the migrations of {cls.__module__}.{cls.__qualname__} cannot be used: {reason}")
        self.class_name = f"{cls.__module__}.{cls.__qualname__}"
        self.reason = reason


class ServerError(StagebellError):
    """Something is wrong between this process and the Redis or Valkey server."""


class ServerUnavailable(ServerError, ConnectionError):
    """The server cannot be reached."""


class ServerNotFound(ServerError, FileNotFoundError):
    """No server program on this machine."""


class ServerRefused(ServerError):
    """The server answered a command with an error; `code` is its first word ("OOM", "READONLY", "NOPERM", …)."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code or text.partition(" ")[0]


class OutcomeUnknown(ServerError):
    """A send was interrupted and may or may not have arrived."""


class Busy(ServerError):
    """An inbox is full; `length` is how many messages wait in it. Nothing was sent."""

    def __init__(self, recipient: AgentId | str, length: int) -> None:
        super().__init__(
            f"the inbox of {recipient} holds {length:,} messages and takes no more from outside: try later"
        )
        self.recipient = str(recipient)
        self.length = length
