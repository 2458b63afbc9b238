"""How a turn ends: what its commit, or its failure, asks of the server, and what follows from the answer.

`turns` says what the answers mean.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from asyncio import Future, get_running_loop
from collections.abc import Sequence
from typing import Any

from autogen_core import AgentId

from stagebell.errors import ServerError, ServerRefused
from stagebell.messages.envelope import Envelope
from stagebell.messages.failure import reason_text
from stagebell.runtime.engine.clock import Alarm
from stagebell.runtime.engine.turn import Turn
from stagebell.runtime.redis.calls import TurnCalls
from stagebell.runtime.redis.effects import Effect, Mark
from stagebell.runtime.redis.later import DeferredCall
from stagebell.runtime.redis.outbox import Outbox
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.requests import NO_REPLY, NONE_SEEN, NOTHING_OPEN, Delivery, LeftOpen, Nested, ReplyTo
from stagebell.runtime.redis.requests import Turn as Fence
from stagebell.runtime.redis.results import EndReply
from stagebell.runtime.redis.scripts import Scripts
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.storage import Stored
from stagebell.runtime.redis.telling_back import answer_for, failure_for, word_to_itself
from stagebell.runtime.redis.wire import traceback_text

logger = logging.getLogger("stagebell")


class TurnEnding(ABC):
    """The part of a `DurableTurn` that deals with its end."""

    __slots__ = (
        "_calls",
        "_closed",
        "_deadline_alarm",
        "_nested",
        "_outbox",
        "_outputs",
        "_parent",
        "_partition",
        "_registry_version",
        "_reply",
        "_reply_to",
        "_services",
        "_state",
        "_stored",
        "_version",
        "abandoned",
        "agent",
        "envelope",
        "fence",
        "number",
        "sent",
        "turn",
        "turn_id",
        "wish",
    )

    def __init__(
        self,
        services: Services,
        partition: Partition,
        entry_id: str,
        turn_id: str,
        agent: AgentId,
        envelope: Envelope,
        reply_to: ReplyTo,
    ) -> None:
        self.turn_id = turn_id
        self.agent = agent
        self.envelope = envelope
        self.fence = Fence(partition.keys, partition.token, str(agent), entry_id, turn_id)
        self.turn: Turn | None = None
        self.wish = ""  # the entry of `ctl` by which it is ended before its time, if it is one
        self.abandoned = False
        self._calls: TurnCalls | None = None
        self._services = services
        self._partition = partition
        self._reply_to = reply_to
        self._stored: Stored | None = None
        self._version: int | None = None
        self._closed = False
        self.sent = False
        self._deadline_alarm: Alarm | None = None
        self._registry_version: int | None = None
        self.number = 0
        self._nested: Nested | None = None
        self._parent: TurnEnding | None = None
        self._outbox: Outbox | None = None
        self._outputs: Sequence[Delivery | Effect] = ()
        self._state = b""
        self._reply = b""

    async def _new_state(self, turn: Turn) -> bytes:
        agent, stored = turn.activation.agent, self._stored
        if agent is None or stored is None or not stored.keeps:
            return b""
        assert stored.form is not None  # the agent was loaded before its turn began
        data = self._services.wire.encode_state(self.agent, stored.form, await agent.save_state())
        return b"" if data == stored.data and self._nested is None else data

    @property
    def answers(self) -> bool:
        """True when somebody waits for the outcome."""
        return self._reply_to.waits

    @property
    def outbox(self) -> Outbox:
        """What leaves with the commit; most turns have none."""
        if self._outbox is None:
            self._outbox = Outbox(self._services, self.turn_id)
        return self._outbox

    def _encode_reply(self, result: Any) -> bytes:
        if self.turn is not None and isinstance(self.turn.later, DeferredCall):
            return self._put_off(self.turn.later)
        if not self._reply_to.mode:
            return b""
        return answer_for(self._services, self._reply_to, self.envelope, self.agent, result)

    def _put_off(self, later: DeferredCall) -> bytes:
        """The reply was deferred: what the turn answers after all, or nothing but a mark."""
        if later.answer is not None:
            return later.answer if self._reply_to.mode else b""
        call = self.envelope
        mark = Mark(call.id, str(self.agent), call.sender, self._reply_to, later.if_given_up, call.deadline)
        self.outbox.put(self._services.marks.set(self.fence.keys, self.turn_id, mark))
        self._services.deferring[self.turn_id] = get_running_loop().create_future()
        return b""

    def _send_commit(self) -> None:
        order = self._services.commit_order
        leaves = not order.somebody_waits
        if self._outbox is not None:
            leaves = order.may_leave() and self.find_recipients()
        self.number = order.next_number()
        if self._stored is not None and self._stored.keeps and self._nested is None:
            self._stored.sent(self._state)
        if self._below is not None:
            self._below.keep(self._state)
        if leaves:
            self.go()
        else:
            order.wait(self)

    @property
    def _below(self) -> TurnCalls | None:
        """Of a nested turn: the calls of the turn below it, which must know what this one leaves."""
        return self._parent._calls if self._parent is not None else None

    def _count_below(self, more: int) -> None:
        if self._below is not None and self.keeps_state:
            self._below.saved(more)

    # -- what the order of commits asks (commit_order.OrderedCommit)

    def find_recipients(self) -> bool:
        """Look up who gets what the turn published; False when a place is not known."""
        outputs = self._outbox.outputs() if self._outbox is not None else ()
        self._outputs = outputs or ()
        return outputs is not None

    async def find_places(self) -> None:
        """Make such places known."""
        if self._outbox is not None:
            await self._outbox.find_places()

    def go(self) -> None:
        """Send the commit; from now on replies to calls that tasks of the turn have open come to the process."""
        if self._outbox is not None:
            self._registry_version = self._services.commit_order.left()
        self.sent = True
        self._services.link.run(self._ask_commit, self._on_end)
        self._count_below(1)  # at once: should it be refused, what the turn below sends after it must be, too
        self._hand_over_calls()

    def cannot_go(self, error: BaseException | None) -> None:
        """Its recipients cannot be found: the turn fails. Or, without an error, it was abandoned while it waited."""
        self._answered()
        if self.abandoned or error is None or self.turn is None:
            return
        if isinstance(error, ServerError):
            self._not_settled(error)
        else:
            self._services.dispatcher.spawn(self.fail(self.turn, error))

    @abstractmethod
    async def fail(self, turn: Turn, error: BaseException) -> None:
        """The handler raised, or what it did cannot be committed."""
        ...

    @abstractmethod
    def forget(self) -> None:
        """Nothing of this message will be committed here."""
        ...

    @abstractmethod
    def lost_its_ground(self, *, fenced: bool) -> None:
        """The server knows of no such turn."""
        ...

    # -- the answer

    def _ask_commit(self, scripts: Scripts) -> Future[EndReply]:
        calls = self._calls
        return scripts.commit(
            self.fence,
            version=self._version,
            state=self._state,
            nested=self._nested if self.keeps_state else None,
            reply_to=self._reply_to if self._reply else NO_REPLY,
            reply=self._reply,
            outputs=self._outputs,
            known_replies=calls.known_replies if calls is not None else 0,
            known_savepoints=calls.known_savepoints if calls is not None else NONE_SEEN,
            registry_version=self._registry_version,
            left_open=self._left_open(),
        )

    def _left_open(self) -> LeftOpen:
        if self._calls is None or not self._calls.open:
            return NOTHING_OPEN
        return LeftOpen(tuple(self._calls.open), self._services.replies.stream.key)

    def _answered(self) -> None:
        if self._services.deferring and (deferring := self._services.deferring.pop(self.turn_id, None)):
            deferring.set_result(None)
        if self._stored is not None and self._stored.keeps and self._nested is None:
            self._stored.answered()

    def _on_end(self, outcome: EndReply | BaseException) -> None:
        version = self._registry_version
        if version is not None:
            self._services.commit_order.answered(version)
            if isinstance(outcome, EndReply) and outcome.status == "STALE_REGISTRY":
                self.sent = False
                self._count_below(-1)
                self._services.commit_order.wait(self, refused=version)
                return
        self._answered()
        if isinstance(outcome, BaseException):
            self._not_settled(outcome)
            return
        match "OK" if self._took_effect(outcome) else outcome.status:
            case "OK":
                self._settled()
                if self._outbox is not None:
                    self._outbox.deliver_here()
            case "DUP":
                self._partition.leave(self.fence.entry_id)
                self._settled()
                self._forget_agent()
                if self._nested is not None:
                    self.lost_its_ground(fenced=False)
            case "FENCED" | "STALE":
                self.lost_its_ground(fenced=outcome.status == "FENCED")
            case _:
                self._refused(outcome)

    def _took_effect(self, reply: EndReply) -> bool:
        """True when the input is gone because this very commit was sent before, and its answer lost."""
        if self._nested is not None or self._version is None:
            return False
        return reply.status == "DUP" and reply.version > self._version  # later turns may have been sent with it

    def _stop_alarm(self) -> None:
        if self._deadline_alarm is not None:
            self._deadline_alarm.cancel()

    def _settled(self) -> None:
        self._stop_alarm()
        self._partition.done(self.fence.entry_id)
        self._calls_no_more()
        self._hand_over_calls()

    def _calls_no_more(self) -> None:
        # The same message may be here twice, when the server lost writes and got it again under another entry id.
        if self._services.calling.get(self.turn_id) is self:
            del self._services.calling[self.turn_id]

    def _hand_over_calls(self) -> None:
        if self._calls is not None:
            self._calls.hand_over()

    def _give_calls_up(self) -> None:
        if self._calls is not None:
            self._calls.give_up()

    def _forget_agent(self) -> None:
        """The agent in memory is not what is stored: the next turn, when this one has ended, loads it again."""
        if self.keeps_state and self.turn is not None:
            self._services.passivation.leave(self.turn.activation)

    @property
    def keeps_state(self) -> bool:
        return self._stored is not None and self._stored.keeps

    def _refused(self, reply: EndReply) -> None:
        reason = f"the server's key {reply.detail} has a type that nobody of us wrote ({reply.status})"
        logger.error("the turn of %s for message %s cannot be committed: %s", self.agent, self.envelope.id, reason)
        if reply.detail == self._reply_to.key:
            self._reply_to = NO_REPLY  # the caller's own key is spoilt: no failure could be written there either
        self.set_aside(ServerRefused(reason), has_state=self.keeps_state, dead_letter=reason)

    def _not_settled(self, error: BaseException) -> None:
        self.abandoned = True
        self._stop_alarm()
        self._partition.leave(self.fence.entry_id)
        self._give_calls_up()
        if not self._services.stopping:
            logger.error("the turn of %s for message %s was not committed: %s", self.agent, self.envelope.id, error)
            self._partition.start_over()

    def set_aside(
        self,
        error: BaseException,
        *,
        has_state: bool,
        dead_letter: str = "",
        uncounted: int = 0,
        bare: bool = False,
        drops: bool = False,
    ) -> None:
        """End the turn with a failure: to the caller, when somebody waits, else to the dead letters.

        Args:
            dead_letter: why, in one line, for a message that is to be a dead letter in any case.
            uncounted: attempts that the server does not know of.
            bare: tell the caller and touch no other key, since one of them is spoilt.
            drops: when nobody waits and there is no reason for a dead letter, let it go.
        """
        self._closed = self.sent = True
        reply_to = self._reply_to
        if not (reply_to.mode or dead_letter or drops):
            dead_letter = reason_text(error)
        services, fence = self._services, self.fence
        failure = failure_for(services, reply_to, self.envelope, self.agent, error)
        if dead_letter and not reply_to.mode:
            reply_to, failure = word_to_itself(services, fence.keys, fence.entry_id, self.envelope, self.agent, error)
        traceback = traceback_text(error).strip()[-4000:] if dead_letter else ""
        calls = self._calls
        self._services.link.run(
            lambda scripts: scripts.fail(
                self.fence,
                has_state=has_state,
                nested=self._nested if has_state else None,
                reply_to=reply_to,
                failure=failure,
                dead_letter=dead_letter,
                traceback=traceback,
                uncounted=uncounted,
                known_replies=calls.known_replies if calls is not None else 0,
                known_savepoints=calls.known_savepoints if calls is not None else 0,
                left_open=self._left_open(),
                wish=self.wish,
                bare=bare,
            ),
            lambda outcome: self._on_failed(outcome, None if bare else error),
        )
        self._hand_over_calls()

    def _on_failed(self, outcome: EndReply | BaseException, told: BaseException | None = None) -> None:
        if isinstance(outcome, BaseException):
            self._not_settled(outcome)
            return
        match outcome.status:
            case "OK" | "DUP":
                self._stop_alarm()
                if outcome.status == "DUP":
                    self._partition.leave(self.fence.entry_id)
                self._partition.done(self.fence.entry_id)
                self._calls_no_more()
                self._hand_over_calls()
                if self._below is not None and outcome.status == "DUP":
                    self.lost_its_ground(fenced=False)
                elif self._below is not None:
                    self._below.saved(max(0, outcome.parent_savepoints - self._below.known_savepoints))
            case "FENCED" | "STALE":
                self.lost_its_ground(fenced=outcome.status == "FENCED")
            case "BADKEY" if told is not None and self._reply_to.mode:
                logger.error("%s: key %s has a wrong type, its caller is told and no more", self.agent, outcome.detail)
                self.set_aside(told, has_state=False, bare=True)
            case _:
                logger.error(
                    "message %s to %s can be neither handled nor set aside, it stays in the inbox: %s %s",
                    self.envelope.id,
                    self.agent,
                    outcome.status,
                    outcome.detail,
                )
