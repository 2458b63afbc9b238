"""A message from an inbox, and the turn in which it is handled: all it does takes effect with one commit, or not at all.

    accepted ──▶ begun ──▶ handler ──▶ committing ──▶ settled
        │          │          │ call: journalled, leaves at once
        │          │          │ publish: into the outbox, leaves with the commit
        └──────────┴──────────┴──▶ abandoned: the partition was lost or the server went back; nothing takes effect

The store decides, never memory. A commit answers
    OK         it took effect
    DUP        the input was gone: an earlier attempt of ours took effect, or somebody else's; memory is read again
    FENCED     another worker owns the partition; it runs the message
    STALE      memory and store disagree; the partition is read again
    STALE_REGISTRY   subscriptions changed; the recipients are looked up again and the commit is repeated

A turn that ends in its first step is not counted as an attempt: its commit leaves before its BEGIN would. When a
partition is taken over from a worker that died, each attempt is counted before the handler runs (`careful`), so a
message that kills its worker at once is found out then.
"""

from __future__ import annotations

import logging
import traceback
from asyncio import CancelledError, Future
from collections.abc import Awaitable, Sequence
from typing import Any, cast

from autogen_core import AgentId, TopicId

from stagebell.errors import DeadLettered, NonDeterministicReplay, ServerError, ServerRefused
from stagebell.messages.envelope import Envelope
from stagebell.messages.registry import Encoded
from stagebell.runtime.engine.snapshots import load_into, state_of
from stagebell.runtime.engine.turn import Entry, Turn
from stagebell.runtime.redis.calls import TurnCalls
from stagebell.runtime.redis.outbox import Outbox
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.requests import NO_REPLY, NOTHING_OPEN, Delivery, LeftOpen, Nested, ReplyTo
from stagebell.runtime.redis.requests import Turn as Fence
from stagebell.runtime.redis.results import EndReply
from stagebell.runtime.redis.scripts import Scripts
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.storage import Stored, stored_of

logger = logging.getLogger("stagebell")

MOST_ATTEMPTS = 4


class DurableTurn:
    """One message of a partition; see `engine.ports.Receipt` and `partition.Incoming`."""

    __slots__ = (
        "_before",
        "_begun",
        "_calls",
        "_closed",
        "_is_alone",
        "_nested",
        "_outbox",
        "_outputs",
        "_partition",
        "_reply",
        "_reply_to",
        "_services",
        "_state",
        "_stored",
        "_version",
        "abandoned",
        "agent",
        "careful",
        "entry",
        "envelope",
        "fence",
        "suspect",
        "turn",
        "turn_id",
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
        self.entry: Entry | None = None
        self.turn: Turn | None = None
        self.abandoned = False
        self.careful = False
        self.suspect = False
        self._is_alone = False
        self._calls: TurnCalls | None = None
        self._services = services
        self._partition = partition
        self._reply_to = reply_to
        self._stored: Stored | None = None
        self._version: int | None = None
        self._begun = False
        self._closed = False
        self._nested: Nested | None = None
        self._before: Any = None
        self._outbox: Outbox | None = None
        self._outputs: Sequence[Delivery] = ()
        self._state = b""
        self._reply = b""

    # -- what the engine asks (engine.ports.Receipt)

    @property
    def calls(self) -> TurnCalls:
        """The calls of this turn; most turns make none."""
        if self._calls is None:
            self._calls = TurnCalls(self._services, self)
        return self._calls

    @property
    def calling(self) -> bool:
        """True while a call of this turn waits for its reply."""
        return self._calls is not None and bool(self._calls.open)

    def admitted_by(self, turn: Turn) -> bool:
        """True when this message descends from a call that `turn` awaits."""
        above = turn.receipt
        return isinstance(above, DurableTurn) and above.calls.awaits_one_of(self.envelope.chain) is not None

    def begin(self, turn: Turn) -> Awaitable[None] | None:
        """Note what the turn starts from, and see to it that the attempt is counted."""
        self.turn = turn
        self._stored = stored = stored_of(turn.activation)
        self._version = stored.version if stored.keeps else None
        if self.abandoned:  # while the agent was made; the next turn must not find what a handler would leave in it
            self._forget_agent()
            raise CancelledError
        if turn.below is None and not self.careful:
            return None
        return self._begin_with_care(turn)

    async def _begin_with_care(self, turn: Turn) -> None:
        if turn.below is not None:
            await self._begin_nested(turn, turn.below)
        if self.suspect:
            await self._services.alone.acquire()
            self._is_alone = True
        if self.careful and not self._begun:
            self._begun = True
            self._counted(await self._services.link.submit(self._ask_begin))
        if self.abandoned:
            raise CancelledError

    def _let_others_go_on(self) -> None:
        if self._is_alone:
            self._is_alone = False
            self._services.alone.release()

    def suspended(self) -> None:
        """The turn waits for something: from now on this process may end before the turn does."""
        if not self.suspect or self._is_alone:  # one that still waits for its time is not to blame
            self.ensure_begun()

    async def _begin_nested(self, turn: Turn, below: Turn) -> None:
        parent = cast(DurableTurn, below.receipt)
        k = parent.calls.awaits_one_of(self.envelope.chain) or "-"
        self._nested = Nested(parent.turn_id, k, parent.calls.known_savepoints)
        if self._stored is not None and self._stored.keeps and turn.activation.agent is not None:
            self._before = await state_of(turn.activation.agent)

    def ensure_begun(self) -> None:
        """Count the attempt, unless the turn is over already."""
        if not self._begun and not self._closed and not self.abandoned:
            self._begun = True
            self._services.link.run(self._ask_begin, self._on_begun)

    def _ask_begin(self, scripts: Scripts) -> Future[int]:
        return scripts.begin(self.fence)

    def _on_begun(self, outcome: int | BaseException) -> None:
        if not isinstance(outcome, BaseException):
            self._counted(outcome)

    def _counted(self, attempts: int) -> None:
        if attempts > 0 or self._closed:
            return
        if attempts < 0:
            self._services.on_lost(self._partition)
        else:
            self._partition.start_over()  # the input is gone and we did not consume it

    def commit(self, turn: Turn, result: Any) -> Awaitable[None] | None:
        """The handler returned: send the commit. It has taken effect when the server says so."""
        self._let_others_go_on()
        if self.abandoned:
            return None
        if self._stored is not None and self._stored.keeps:
            return self._commit_with_state(turn, result)
        self._closed = True
        try:
            self._reply = self._encode_reply(result)
        except Exception as error:
            self._closed = False
            return self.fail(turn, error)
        self._send_commit()
        return None

    async def _commit_with_state(self, turn: Turn, result: Any) -> None:
        self._closed = True
        try:
            self._state = await self._new_state(turn)
            self._reply = self._encode_reply(result)
        except Exception as error:  # the agent's own save_state may raise anything
            self._closed = False
            await self.fail(turn, error)
            return
        self._send_commit()

    async def fail(self, turn: Turn, error: BaseException) -> None:
        """The handler raised: the failure reply and the removal of the input take effect, nothing else."""
        self._let_others_go_on()
        if isinstance(error, CancelledError) and self._services.stopping:
            self.forget()
        if self.abandoned or isinstance(error, KeyboardInterrupt | SystemExit):
            return
        self._closed = True
        if not self._reply_to.mode:
            logger.error("%s failed to handle a message, it goes to the dead letters", self.agent, exc_info=error)
            self._services.on_publish_error(error)
        agent, stored = turn.activation.agent, stored_of(turn.activation)
        if stored.keeps and self._nested is not None and agent is not None:
            await load_into(agent, self._before)
        elif stored.keeps:
            turn.activation.agent = None  # the next turn loads what is stored
        self.set_aside(error, has_state=stored.keeps)

    def drop(self) -> None:
        """The engine stops: the message stays in the inbox, for whoever owns the partition next."""
        self.abandoned = True
        self._partition.pending.pop(self.fence.entry_id, None)

    # -- what the partition asks (partition.Incoming)

    def forget(self) -> None:
        """Nothing of this message will be committed here."""
        if self.abandoned:
            return
        self.abandoned = True
        self._partition.pending.pop(self.fence.entry_id, None)
        self._services.calling.pop(self.turn_id, None)
        if self.turn is None:
            if self.entry is not None:
                self._services.dispatcher.withdraw(self.entry)
            return
        self._forget_agent()
        if not self._closed:
            self._services.dispatcher.cancel(self.turn)

    def forget_unless_started(self) -> None:
        """The same, for a message whose turn has not started."""
        if self.turn is None and not self._closed:
            self.forget()

    # -- effects of the handler

    @property
    def takes_effects(self) -> bool:
        """True while what the handler does is part of the turn; of an abandoned one nothing takes effect."""
        return not self._closed

    def publish(self, message: Any, encoded: Encoded, topic: TopicId, sender: AgentId | None) -> None:
        """Publish with the commit."""
        if self._outbox is None:
            self._outbox = Outbox(self._services, self.turn_id)
        self._outbox.add(message, encoded, topic, sender)

    # -- the end

    async def _new_state(self, turn: Turn) -> bytes:
        agent, stored = turn.activation.agent, self._stored
        if agent is None or stored is None or not stored.keeps:
            return b""
        data = self._services.wire.encode_state(self.agent, await state_of(agent))
        return b"" if data == stored.data and self._nested is None else data

    def _encode_reply(self, result: Any) -> bytes:
        if not self._reply_to.mode:
            return b""
        return self._services.wire.reply(result, id=self.envelope.id, sender=self.agent)

    def _send_commit(self) -> None:
        self._outputs = self._outbox.deliveries() if self._outbox is not None else ()
        self._services.link.run(self._ask_commit, self._on_end)
        if self._stored is not None and self._stored.keeps and self._nested is None:
            self._stored.sent(self._state)

    def _ask_commit(self, scripts: Scripts) -> Future[EndReply]:
        calls = self._calls
        return scripts.commit(
            self.fence,
            version=None if self._nested is not None else self._version,
            state=self._state,
            nested=self._nested,
            reply_to=self._reply_to,
            reply=self._reply,
            outputs=self._outputs,
            known_replies=calls.known_replies if calls is not None else 0,
            known_savepoints=calls.known_savepoints if calls is not None else 0,
            registry_version=self._services.directory.version if self._outbox is not None else None,
            left_open=self._left_open(),
        )

    def _left_open(self) -> LeftOpen:
        if self._calls is None or not self._calls.open:
            return NOTHING_OPEN
        return LeftOpen(tuple(self._calls.open), self._services.replies.stream.key)

    def _on_end(self, outcome: EndReply | BaseException) -> None:
        if self._stored is not None and self._stored.keeps and self._nested is None:
            self._stored.answered()
        if isinstance(outcome, BaseException):
            self._not_settled(outcome)
            return
        match "OK" if self._took_effect(outcome) else outcome.status:
            case "OK":
                self._settled()
                if self._outbox is not None:
                    self._outbox.deliver_here()
            case "STALE_REGISTRY":
                self._services.dispatcher.spawn(self._commit_again())
            case "DUP":
                self._settled()
                self._forget_agent()
                if self._nested is not None:
                    self._partition.start_over()
            case "FENCED":
                self._services.on_lost(self._partition)
            case "STALE":
                self._partition.start_over()
            case _:
                self._refused(outcome)

    def _took_effect(self, reply: EndReply) -> bool:
        """True when the input is gone because this very commit was sent before, and its answer lost."""
        if self._nested is not None or self._version is None:
            return False
        return reply.status == "DUP" and reply.version > self._version  # later turns may have been sent with it

    async def _commit_again(self) -> None:
        assert self._outbox is not None
        try:
            await self._outbox.refresh()
        except ServerError:
            self._partition.start_over()
        if self.abandoned:
            return
        if self._stored is not None and self._stored.keeps and self._nested is None:
            self._stored.version -= 1
        self._send_commit()

    def _settled(self) -> None:
        self._partition.done(self.fence.entry_id)
        self._services.calling.pop(self.turn_id, None)
        self._hand_over_calls()
        if self._nested is not None and self.turn is not None and self.turn.below is not None:
            parent = self.turn.below.receipt
            if isinstance(parent, DurableTurn):
                parent.calls.known_savepoints += 1

    def _hand_over_calls(self) -> None:
        if self._calls is not None:
            self._calls.hand_over()

    def _forget_agent(self) -> None:
        """The agent in memory is not what is stored: the next turn, when this one has ended, loads it again."""
        if self._keeps_state and self.turn is not None:
            self.turn.activation.agent = None

    @property
    def _keeps_state(self) -> bool:
        return self._stored is not None and self._stored.keeps

    def _refused(self, reply: EndReply) -> None:
        reason = f"the server's key {reply.detail} has a type that nobody of us wrote ({reply.status})"
        logger.error("the turn of %s for message %s cannot be committed: %s", self.agent, self.envelope.id, reason)
        if reply.detail == self._reply_to.key:
            self._reply_to = NO_REPLY  # the caller's own key is spoilt: no failure could be written there either
        self.set_aside(ServerRefused(reason), has_state=self._keeps_state, dead_letter=reason)

    def _not_settled(self, error: BaseException) -> None:
        self.abandoned = True
        if not self._services.stopping:
            logger.error("the turn of %s for message %s was not committed: %s", self.agent, self.envelope.id, error)

    def set_aside(self, error: BaseException, *, has_state: bool, dead_letter: str = "") -> None:
        """End the turn with a failure: to the caller, when somebody waits, else to the dead letters."""
        self._closed = True
        waits = bool(self._reply_to.mode)
        if not waits and not dead_letter:
            dead_letter = "".join(traceback.format_exception(error)).strip()[-4000:]
        failure = self._services.wire.failure(error, id=self.envelope.id, sender=str(self.agent)) if waits else b""
        calls = self._calls
        self._services.link.run(
            lambda scripts: scripts.fail(
                self.fence,
                has_state=has_state,
                nested=self._nested,
                reply_to=self._reply_to,
                failure=failure,
                dead_letter=dead_letter,
                known_savepoints=calls.known_savepoints if calls is not None else 0,
                left_open=self._left_open(),
            ),
            self._on_failed,
        )

    def _on_failed(self, outcome: EndReply | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._not_settled(outcome)
            return
        match outcome.status:
            case "OK" | "DUP":
                self._partition.done(self.fence.entry_id)
                self._services.calling.pop(self.turn_id, None)
                self._hand_over_calls()
            case "FENCED":
                self._services.on_lost(self._partition)
            case "STALE":
                self._partition.start_over()
            case _:
                logger.error(
                    "message %s to %s can be neither handled nor set aside, it stays in the inbox: %s %s",
                    self.envelope.id,
                    self.agent,
                    outcome.status,
                    outcome.detail,
                )

    def pass_over(self) -> None:
        """Consume a publish that the agent does not handle."""
        self._closed = True
        self._services.link.run(lambda scripts: scripts.commit(self.fence, version=None), self._on_failed)

    def not_deterministic(self, k: str) -> NonDeterministicReplay:
        """The error of a turn that ran again and made another call in this place."""
        return NonDeterministicReplay(self.agent, k)

    def give_up(self, attempts: int) -> None:
        """Set a message aside that has killed its worker again and again."""
        reason = f"crashed: the worker that ran it died {attempts} times"
        error = DeadLettered(self.agent, self.envelope.id, reason)
        self.set_aside(error, has_state=self._class_keeps_state, dead_letter=reason)

    @property
    def _class_keeps_state(self) -> bool:
        hosted = self._services.catalog.types.get(self.agent.type)
        return hosted is not None and stored_of(hosted.activation(self.agent)).keeps
