"""What the engine asks of a transport. The in-memory runtime needs none of it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from autogen_core import AgentId, TopicId

if TYPE_CHECKING:
    from stagebell.runtime.engine.activation import Activation
    from stagebell.runtime.engine.timers import Timer
    from stagebell.runtime.engine.turn import Entry, Turn


class Receipt(Protocol):
    """What a transport keeps for one message that it brought, to settle it when the turn ends."""

    def admitted_by(self, turn: Turn) -> bool:
        """True when the message descends from a call that `turn` is awaiting."""
        ...

    @property
    def calling(self) -> bool:
        """True while the turn has a call open that the engine knows nothing of."""
        ...

    @property
    def from_outside(self) -> bool:
        """True unless the message is a call from a turn."""
        ...

    def begin(self, turn: Turn) -> Awaitable[None] | None:
        """The turn starts; called after the agent is in memory and before its handler runs."""
        ...

    def cancelled(self) -> None:
        """The turn is cancelled, and with it every call that the engine knows nothing of."""
        ...

    def interrupt(self, entry: Entry) -> None:
        """A message has come for which the turn is given up as if it were cancelled, unless it descends from it."""
        ...

    def suspended(self) -> None:
        """The handler has not ended in its first step."""
        ...

    async def record(self, turn: Turn, name: str, value: str) -> str | None:
        """Keep a value with the turn; see `journal.record`."""
        ...

    async def recorded(self, name: str) -> str | None:
        """What is kept with the turn under a name; see `journal.recorded`."""
        ...

    def commit(self, turn: Turn, result: Any) -> Awaitable[None] | None:
        """The handler returned `result`."""
        ...

    async def fail(self, turn: Turn, error: BaseException) -> None:
        """The handler, or the making of the agent, raised `error`."""
        ...

    def drop(self) -> None:
        """The engine forgot the message without running it; it stays where it came from."""
        ...


class Delivery(Protocol):
    """Told when one of the subscribers of a publish has handled it, or never will (`error` says why)."""

    def delivered(self, error: BaseException | None) -> None: ...


class Storage(Protocol):
    """Where an agent that is not in memory comes from."""

    async def load(self, activation: Activation) -> None:
        """Bring the stored state into the agent that was just made."""
        ...


class Later(Protocol):
    """What a turn keeps once its reply was deferred."""

    @property
    def id(self) -> str:
        """Tells the call from the agent's others."""
        ...

    def result(self, result: Any) -> Any:
        """What the turn, whose handler returned `result`, answers now; `turn.LATER` when the caller is to wait on.

        Raises:
            DeferredReplyError: the handler returned something although it deferred its reply.
            BaseException: what the caller was to get.
        """
        ...

    def keep(self, entry: Entry) -> None:
        """The turn has ended with `turn.LATER`."""
        ...


class LaterReplies(Protocol):
    """Replies that come later than the end of the turn that handled the call; see `deferred`."""

    def defer(self, turn: Turn, if_given_up: Any) -> str:
        """The reply to the call that `turn` handles comes later; returns the call's id.

        When the caller waits no more, the agent is told `if_given_up`, unless that is None.

        Raises:
            DeferredReplyError: this turn can have no such reply.
        """
        ...

    async def answer(self, turn: Turn, id: str, message: Any, error: BaseException | None) -> None:
        """Answer a call of `turn`'s agent, from inside of `turn`.

        Raises:
            AlreadyAnswered: it was answered, or nobody knows of it.
            DeferredReplyError: the turn has no effects any more.
            UnregisteredType, MessageTooLarge: the message cannot travel.
        """
        ...


class Timers(Protocol):
    """Messages that come later; both runtimes can do this, and `Publisher` too."""

    async def schedule(
        self,
        message: Any,
        to: AgentId | TopicId,
        *,
        delay: float | None = None,
        every: float | None = None,
        at: datetime | None = None,
        name: str | None = None,
    ) -> Timer:
        """Let a message come later; see `LocalRuntime.schedule`."""
        ...

    async def cancel_timer(self, id: str) -> bool:
        """Let it come no more; see `Timer.cancel`."""
        ...


class Tells(Protocol):
    """Messages to one agent that nobody waits for; both runtimes can do this."""

    async def tell(self, message: Any, to: AgentId, *, expects: type | None = None) -> None:
        """Send a message to one agent, whose handler answers nobody; see `LocalRuntime.tell`."""
        ...


class SavedStates(Protocol):
    """The states of agents without their agents; both runtimes can tell them, and `Publisher` too."""

    async def saved_states(self, agent_type: str, key: str | None = None) -> Mapping[str, Mapping[str, Any]]:
        """The states of all agents of a type (or of one, with `key`), by their keys, as they were stored last.

        No worker is needed.

        In `LocalRuntime`, which stores none, those of the agents in memory.
        """
        ...


class StateLimit(Protocol):
    """How large a stored state may be; both runtimes can tell."""

    @property
    def state_limit(self) -> int | None:
        """In bytes, as it is stored; None for a runtime that stores none with its turns."""
        ...


class GoingOn(Protocol):
    """Agents that go on by telling themselves; both runtimes can do this."""

    def may_go_on(self) -> bool:
        """Whether the turn that asks may do at once what it would else tell its own agent.

        True when that makes no difference to anybody: the turn is in memory alone, so that no commit would come in
        between, no message waits for the agent, nobody has cancelled the turn, and the runtime is not being stopped.
        """
        ...
