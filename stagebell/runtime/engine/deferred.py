"""A reply that comes later: the handler of a call takes a handle and returns None; a later turn of its agent answers.

    call ──▶ turn: defer_reply() ──▶ ended with None: the caller waits on ──▶ another turn: handle.answer(…) ──▶ reply

What holds at all times
    - A handle is text. It names the agent and the call, and nothing else: whoever keeps it may keep it for days.
    - Only the agent that was called answers, from inside a turn; each call is answered once.
    - A turn that fails has deferred nothing: its caller gets the error.

Where a call waits meanwhile is the transport's business (`ports.LaterReplies`). Here is the one in memory.
"""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from autogen_core import AgentId
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from stagebell.errors import AlreadyAnswered, DeferredReplyError
from stagebell.runtime.engine.interventions import Interventions
from stagebell.runtime.engine.outcome import set_error, set_result
from stagebell.runtime.engine.turn import LATER, Entry, Turn, current_turn

if TYPE_CHECKING:
    from stagebell.runtime.engine.ports import Receipt

_TEXT: Final = re.compile(r"([\w.-]+):(.+)", re.DOTALL)


class DeferredReply(str):
    """The handle of a call that will be answered by a later turn; made by `defer_reply`.

    It is a text, so it can be stored in a state or sent in a message; a field of a pydantic model may have this type.
    `DeferredReply(text)` makes it of its text again, and raises ValueError when that is no handle.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r:.80} is no handle of a deferred reply")
        AgentId.from_str(found[2])  # raises ValueError
        return super().__new__(cls, text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The handle that has this text. Raises ValueError when it is no handle."""
        return cls(text)

    @property
    def id(self) -> str:
        """Tells the call from the agent's others."""
        return self.partition(":")[0]

    @property
    def agent(self) -> AgentId:
        """The agent that was called, and that answers."""
        return AgentId.from_str(self.partition(":")[2])

    async def answer(self, message: Any) -> None:
        """Answer the call from inside a turn of the agent that was called; the reply leaves with the turn's commit.

        A caller that has given up meanwhile gets nothing, and that is no error.

        Args:
            message: what the caller gets, as if the handler had returned it.

        Raises:
            AlreadyAnswered: it was answered before, or nobody knows of it.
            DeferredReplyError: this is no turn of the agent that was called.
            UnregisteredType, MessageTooLarge: the message cannot travel.
        """
        await self._settle(message, None)

    async def fail(self, error: BaseException) -> None:
        """As `answer`, with an exception that the caller's `await` will raise."""
        await self._settle(None, error)

    async def _settle(self, message: Any, error: BaseException | None) -> None:
        turn = current_turn.get()
        if turn is None or turn.closed or turn.activation.id != self.agent:
            raise DeferredReplyError(
                f"the call of handle {self} was to be answered outside of the turns of {self.agent}: send that agent a "
                "message, and let its handler answer"
            )
        await turn.activation.hosted.later.answer(turn, self.id, message, error)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())


def defer_reply(*, if_given_up: Any = None) -> DeferredReply:
    """Answer the call that is being handled later; the handler then returns None (declare it as `-> Answer | None`).

    The caller goes on waiting. Keep the handle, and answer through it in a later turn of the same agent, or in this
    one. Called twice in one turn it gives the same handle.

    Args:
        if_given_up: a message that this agent is told when the caller waits no more, since it was cancelled or its
            deadline is over; from then on nobody knows the handle. Without it, an answer that comes then goes nowhere.

    Returns:
        The handle.

    Raises:
        DeferredReplyError: no call is being handled; or the call came while the agent waits for a call of its own, from
            which this one descends, so that no later turn could come before the answer.
        UnregisteredType, MessageTooLarge: `if_given_up` cannot travel.
    """
    turn = current_turn.get()
    if turn is None or turn.closed or not turn.is_rpc:
        raise DeferredReplyError("defer_reply() was called where no call is being handled: there is no reply to defer")
    if turn.below is not None:
        raise DeferredReplyError(
            f"{turn.activation.id} waits for a call of its own, and is called back from there: it has no later turn "
            "before this call is answered, so its reply cannot be deferred"
        )
    id = turn.activation.hosted.later.defer(turn, if_given_up)
    return DeferredReply(f"{id}:{turn.activation.id}")


def refuse_result(turn: Turn, result: Any) -> None:
    """Raises DeferredReplyError when the handler of a turn that deferred its reply returned one."""
    if result is not None:
        raise DeferredReplyError(
            f"the handler of {turn.activation.id} deferred its reply and returned a {type(result).__name__}: let it "
            "return None, or answer without defer_reply()"
        )


class RepliesInMemory:
    """The calls to agents of this process whose replies come later; see `ports.LaterReplies`."""

    def __init__(self, interventions: Interventions) -> None:
        self.interventions = interventions
        self.waiting: dict[str, _Waiting] = {}
        self.tell: Callable[[Any, AgentId], None] = lambda message, to: None

    def defer(self, turn: Turn, if_given_up: Any) -> str:
        """The reply to the call that `turn` handles comes later; returns its id."""
        if turn.later is None:
            turn.later = _Waiting(self, turn)
        if if_given_up is not None and isinstance(turn.later, _Waiting):
            turn.later.if_given_up = if_given_up
        return turn.later.id

    async def answer(self, turn: Turn, id: str, message: Any, error: BaseException | None) -> None:
        """Answer a call, at once.

        Raises:
            AlreadyAnswered: it was answered, or nobody knows of it.
        """
        later = turn.later if turn.later is not None and turn.later.id == id else self.waiting.pop(id, None)
        if not isinstance(later, _Waiting) or later.answered:
            raise AlreadyAnswered(turn.activation.id, id)
        later.answered = True
        if error is None and self.interventions.active:
            try:
                message = await self.interventions.on_response(message, turn.activation.id, later.turn.sender)
            except Exception as refused:
                error = refused
        await later.settle(message, error)

    def end(self, error: BaseException) -> None:
        """The runtime stops: those who wait get this error."""
        for id, later in list(self.waiting.items()):
            if later.reply is not None:
                del self.waiting[id]
                later.answered = True
                set_error(later.reply, error)


class _Waiting:
    """One such call, from `defer_reply` on; see `ports.Later`."""

    __slots__ = ("_outcome", "_receipt", "_replies", "answered", "id", "if_given_up", "reply", "turn")

    def __init__(self, replies: RepliesInMemory, turn: Turn) -> None:
        self.id = uuid4().hex
        self.if_given_up: Any = None
        self.turn = turn
        self.answered = False
        self.reply: Future[Any] | None = None
        self._replies = replies
        self._receipt: Receipt | None = None
        self._outcome: tuple[Any, BaseException | None] = None, None

    def result(self, result: Any) -> Any:
        """What the turn, which returned `result`, answers now."""
        refuse_result(self.turn, result)
        if not self.answered:
            return LATER
        message, error = self._outcome
        if error is not None:
            raise error
        return message

    def keep(self, entry: Entry) -> None:
        """The turn is over, and whoever made this call waits on."""
        entry.turn = None  # nothing is left of it that could be cancelled
        self.reply, self._receipt = entry.reply, entry.receipt
        self._replies.waiting[self.id] = self
        if self.if_given_up is not None and self.reply is not None:
            self.reply.add_done_callback(self._look_whether_given_up)

    def _look_whether_given_up(self, reply: Future[Any]) -> None:
        """The caller has what it waited for, or waits no more."""
        if not self.answered:
            self.answered = True
            self._replies.waiting.pop(self.id, None)
            self._replies.tell(self.if_given_up, self.turn.activation.id)

    async def settle(self, message: Any, error: BaseException | None) -> None:
        """Answer: now, or with the end of the turn when that goes on."""
        if not self.turn.closed:
            self._outcome = message, error
        elif self._receipt is None:
            set_result(self.reply, message) if error is None else set_error(self.reply, error)
        elif error is not None:
            await self._receipt.fail(self.turn, error)
        elif (committed := self._receipt.commit(self.turn, message)) is not None:
            await committed
