"""An entry is a message that waits in a mailbox; a turn is a message that an agent handles.

The turn is the `MessageContext` that the handler sees. Its token and its message id are made when somebody asks for
them, since most handlers ask for neither and making both costs more than the rest of a call.
"""

from __future__ import annotations

import uuid
from asyncio import Future, Task
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

from autogen_core import AgentId, CancellationToken, MessageContext, MessageHandlerContext, TopicId

if TYPE_CHECKING:
    from stagebell.runtime.engine.activation import Activation
    from stagebell.runtime.engine.ports import Delivery, Later, Receipt

current_turn: ContextVar[Turn | None] = ContextVar("stagebell_turn", default=None)

# AutoGen keeps the agent of the running handler (for DefaultTopicId and for its logs) in a context variable of its own
# and offers a context manager to set it; a turn has a context of its own, so setting the variable is enough.
handling_agent = cast("ContextVar[AgentId]", vars(MessageHandlerContext)["_MESSAGE_HANDLER_CONTEXT"])


LATER: Final = object()
"""In the place of a turn's result: its caller waits on, a later turn answers (see `deferred`)."""


class Entry:
    """A message that waits. A publish has one entry for all its subscribers.

    It is `plain` when nobody but the caller, if any, hears how it ended, and nothing but its caller may end it.
    """

    __slots__ = (
        "activation",
        "context",
        "deadline",
        "delivery",
        "is_rpc",
        "message",
        "message_id",
        "parent",
        "plain",
        "receipt",
        "reply",
        "sender",
        "token",
        "topic_id",
        "turn",
    )

    def __init__(
        self,
        message: Any,
        context: Context,
        *,
        sender: AgentId | None = None,
        topic_id: TopicId | None = None,
        is_rpc: bool = False,
        token: CancellationToken | None = None,
        message_id: str | None = None,
        parent: Turn | None = None,
        reply: Future[Any] | None = None,
        receipt: Receipt | None = None,
        delivery: Delivery | None = None,
        deadline: int | None = None,
    ) -> None:
        self.message = message
        self.context = context
        self.sender = sender
        self.topic_id = topic_id
        self.is_rpc = is_rpc
        self.token = token
        self.message_id = message_id
        self.parent = parent
        self.reply = reply
        self.receipt = receipt
        self.delivery = delivery
        self.deadline = deadline
        self.activation: Activation | None = None
        self.turn: Turn | None = None
        self.plain = receipt is None and delivery is None and deadline is None and (token is None or is_rpc)

    @property
    def told(self) -> bool:
        """True for a message in memory to one agent for which nobody waits."""
        return self.is_rpc and self.reply is None and self.receipt is None


class Turn(MessageContext):
    """One message handled by one agent, from its start to its end.

    Attributes that most turns never need have their defaults on the class.
    """

    activation: Activation
    parent: Turn | None = None
    below: Turn | None = None
    calls: list[Turn | Entry] | None = None
    task: Task[Any] | None = None
    reply: Future[Any] | None = None
    receipt: Receipt | None = None
    later: Later | None = None
    depth: int = 0
    closed: bool = False
    cancelled: bool = False
    expired: bool = False  # it was cancelled, or not even begun, since its deadline is over
    deadline: int | None = None  # milliseconds since the epoch
    handles: type | None = None  # the class of its message, where messages may interrupt it
    interrupting: bool = False
    inline: bool = False
    work: Coroutine[Any, Any, Any] | None = None  # the handler, while the turn is open
    suspended_at: float | None = None
    cancelling_before: int = 0
    warned: bool = False
    records: dict[str, str] | None = None  # of a turn in memory; see `journal`
    limited: bool = False  # it is counted by the limit of running turns

    def __init__(
        self,
        activation: Activation,
        parent: Turn | None,
        sender: AgentId | None,
        topic_id: TopicId | None,
        is_rpc: bool,
        token: CancellationToken | None,
        message_id: str | None,
    ) -> None:
        self.activation = activation
        self.sender = sender
        self.topic_id = topic_id
        self.is_rpc = is_rpc
        if parent is not None:
            self.parent = parent
            self.depth = parent.depth + 1
        if token is not None:
            self.cancellation_token = token
        if message_id is not None:
            self.message_id = message_id

    def __getattr__(self, name: str) -> Any:
        if name == "cancellation_token":
            self.cancellation_token = token = CancellationToken()
            return token
        if name == "message_id":
            self.message_id = message_id = str(uuid.uuid4())
            return message_id
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def has_token(self) -> bool:
        """True once somebody gave or asked for the token."""
        return "cancellation_token" in self.__dict__

    def note(self, name: str, value: str) -> str | None:
        """Keep a value in memory, if there is none under this name; see `journal.record`."""
        if self.records is None:
            self.records = {}
        if name in self.records:
            return self.records[name]
        self.records[name] = value
        return None

    def descends_from(self, ancestor: Turn) -> bool:
        """True when `ancestor` is this turn or one that awaits it, over any number of calls."""
        turn: Turn | None = self
        while turn is not None:
            if turn is ancestor:
                return True
            turn = turn.parent
        return False
