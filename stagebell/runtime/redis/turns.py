"""A message from an inbox, and the turn in which it is handled: its effects come with one commit, or not at all.

    accepted ──▶ begun ──▶ handler ──▶ committing ──▶ settled
        │          │          │ call: journalled, leaves at once
        │          │          │ publish: into the outbox, leaves with the commit
        └──────────┴──────────┴──▶ abandoned: the partition was lost or the server went back; nothing takes effect

The store decides, never memory. A commit answers
    OK         it took effect
    DUP        the input was gone: an earlier attempt of ours took effect, or somebody else's; memory is read again
    FENCED     another worker owns the partition; it runs the message
    STALE      memory and store disagree; the partition is read again
    STALE_REGISTRY   subscriptions changed; the recipients are looked up again and the commit is repeated, before
               those behind it (`commit_order`)

A turn that ends in its first step is not counted as an attempt: its commit leaves before its BEGIN would. When a
partition is taken over from a worker that died, each attempt is counted before the handler runs (`careful`), so a
message that kills its worker at once is found out then.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError, Future
from collections.abc import Awaitable, Iterator
from typing import Any, cast

from autogen_core import AgentId, CancellationToken, TopicId

from stagebell.errors import StateMismatch
from stagebell.messages.envelope import Envelope
from stagebell.messages.registry import Encoded
from stagebell.runtime.engine.turn import Entry, Turn
from stagebell.runtime.redis.calls import TurnCalls
from stagebell.runtime.redis.circles import Place
from stagebell.runtime.redis.endings import TurnEnding
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.pausing import bar, pause
from stagebell.runtime.redis.records import keep_record
from stagebell.runtime.redis.requests import Nested, ReplyTo
from stagebell.runtime.redis.results import EndReply
from stagebell.runtime.redis.retries import RetriedTurn
from stagebell.runtime.redis.savepoints import WITHOUT_PLACE, Below
from stagebell.runtime.redis.scripts import Scripts
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.storage import stored_of

logger = logging.getLogger("stagebell")

_ALONE_WITHIN = 5.0  # seconds


class DurableTurn(RetriedTurn):
    """One message of a partition; see `engine.ports.Receipt` and `parked.Incoming`."""

    __slots__ = ("_before", "_is_alone", "below")

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
        super().__init__(services, partition, entry_id, turn_id, agent, envelope, reply_to)
        self.entry = None
        self._ended_by = ""
        self.careful = False
        self.suspect = False
        self._is_alone = False
        self._begun = False
        self._alarm = None
        self.below: tuple[Below, ...] = ()  # of a nested turn: where the turns below it stood
        self._before = b""  # of a nested turn: the state that it found

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

    async def record(self, turn: Turn, name: str, value: str) -> str | None:
        """Keep a value in the turn's journal."""
        return await keep_record(self._services, self, turn, name, value)

    async def recorded(self, name: str) -> str | None:
        """What is kept in the turn's journal under a name."""
        return await self._services.link.submit(lambda scripts: scripts.recorded(self.fence, name))

    def awaited(self) -> Iterator[Place]:
        """The calls of this turn that wait for their replies, as far as the server has taken them."""
        return self._calls.awaited() if self._calls is not None else iter(())

    @property
    def from_outside(self) -> bool:
        """True unless the message is a call from a turn."""
        return not self.envelope.chain

    def admitted_by(self, turn: Turn) -> bool:
        """True when this message descends from a call that `turn` awaits."""
        above = turn.receipt
        # In an abandoned turn, which goes on until it is cancelled, it would find another state than its caller left.
        if not isinstance(above, DurableTurn) or above.abandoned:
            return False
        return above.calls.awaits_one_of(self.envelope.chain) is not None

    def begin(self, turn: Turn) -> Awaitable[None] | None:
        """Note what the turn starts from, and see to it that the attempt is counted."""
        self.turn = turn
        self._stored = stored = stored_of(turn.activation)
        if stored.keeps:
            self._version = stored.version
        if stored.may_leave:
            self._services.passivation.used(turn.activation)
        if self.abandoned:  # while the agent was made; the next turn must not find what a handler would leave in it
            self._forget_agent()
            raise CancelledError
        if turn.below is None and self.ended_while_it_waited():
            raise CancelledError
        if self._partition.holding:  # its agent was paused, and what came after it waits
            self._partition.release(self.agent, self.fence.entry_id)
        if turn.below is None and not self.careful:
            return None
        return self._begin_with_care(turn)

    async def _begin_with_care(self, turn: Turn) -> None:
        if turn.below is not None:
            await self._begin_nested(turn, turn.below)
        if self._ended_by or self.is_given_up:
            self.calls.keep(await self.last_savepoint())
            raise CancelledError if self._ended_by else self.crashed()
        if self.suspect:
            await self._wait_until_alone()
        if self.careful and not self._begun:
            self._begun = True
            self._counted(await self._services.link.submit(self._ask_begin))
        if self.abandoned:
            raise CancelledError

    async def _wait_until_alone(self) -> None:
        try:
            async with asyncio.timeout(_ALONE_WITHIN):
                await self._services.alone.acquire()
                self._is_alone = True
        except TimeoutError:
            self.suspect = False  # the one that runs alone may have called this agent, whose messages wait behind this

    def _let_others_go_on(self) -> None:
        if self._is_alone:
            self._is_alone = False
            self._services.alone.release()

    def cancelled(self) -> None:
        """The turn is cancelled: so are its calls."""
        if self._calls is not None:
            self._calls.cancel()

    def suspended(self) -> None:
        """The turn waits for something: from now on this process may end before the turn does."""
        if not self.suspect or self._is_alone:  # one that still waits for its time is not to blame
            self.ensure_begun()

    async def _begin_nested(self, turn: Turn, below: Turn) -> None:
        parent = cast(DurableTurn, below.receipt)
        k = parent.calls.awaits_one_of(self.envelope.chain) or "-"
        parent.calls.nested_began()
        self._parent = parent
        await parent.calls.taking.rest()
        place = WITHOUT_PLACE if k == "-" else parent.calls.taking.place
        self.below = () if k == "-" else parent.calls.taking.below(k)
        self._nested = Nested(parent.turn_id, place, parent.calls.known_savepoints)
        self._before = await self._new_state(turn)

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
        self.lost_its_ground(fenced=attempts < 0)  # or the input is gone, and we did not consume it

    def commit(self, turn: Turn, result: Any) -> Awaitable[None] | None:
        """The handler returned: send the commit. It has taken effect when the server says so."""
        self._let_others_go_on()
        if self.abandoned:
            return None
        if self._ended_by:
            return self.fail(turn, CancelledError())
        if self._stored is not None and self._stored.keeps:
            return self._commit_with_state(turn, result)
        self._closed = True
        try:
            self._reply = self._encode_reply(result)
            self._send_commit()
        except Exception as error:
            self._closed = False
            return self.fail(turn, error)
        self._let_parent_go_on()
        return None

    async def _commit_with_state(self, turn: Turn, result: Any) -> None:
        if not await self.on_top(turn, self._stored):
            return
        if self._ended_by:
            await self.fail(turn, CancelledError())
            return
        if self._calls is not None and not await self._calls.taking.has_seen_all():
            await self.fail(turn, self.not_deterministic(self._calls.taking.waits_for))
            return
        self._closed = True
        try:
            self._state = await self._new_state(turn)
            self._reply = self._encode_reply(result)
            self._send_commit()
            self._let_parent_go_on()
        except Exception as error:  # the agent's own save_state may raise anything
            self._closed = False
            await self.fail(turn, error)

    async def fail(self, turn: Turn, error: BaseException) -> None:
        """The handler raised: the failure reply and the removal of the input take effect, nothing else.

        A published message is tried again first, see `retries`.
        """
        self._let_others_go_on()
        if isinstance(error, CancelledError) and self._services.stopping and not self._ended_by:
            self._forget_with_those_below()  # they would go on with what it has left half done
        stored = stored_of(turn.activation)
        if isinstance(error, KeyboardInterrupt | SystemExit) or not await self.on_top(turn, stored):
            return
        if isinstance(error, StateMismatch) and self.turn is None and self.entry is not None and not self.answers:
            pause(self._services, turn.activation, error, self)
            return
        self._closed = True
        if stored.keeps and self._nested is not None:
            if self._below is not None:
                self._below.keep(self.calls.savepoint)
            if state := self.calls.savepoint or self._before:
                await self.calls.taking.load(state)
        elif stored.keeps:
            self._services.passivation.leave(turn.activation)  # the next turn loads what is stored
        policy = self.policy_after(turn, error)
        if self._ended_by:
            self.settle_early(has_state=stored.keeps)
        elif policy is not None:
            self.try_again(turn, error, policy)
        else:
            self.fail_finally(turn, error, uncounted=int(not self._begun))
        self._let_parent_go_on()

    def next_attempt(self, entry: Entry) -> DurableTurn:
        """Take the place of this attempt in the partition."""
        fence, partition = self.fence, self._partition
        after = DurableTurn(
            self._services, partition, fence.entry_id, self.turn_id, self.agent, self.envelope, self._reply_to
        )
        after.careful, after.suspect = self.careful, self.suspect
        after.entry, entry.receipt = entry, after
        self._stop_alarm()
        partition.pending[fence.entry_id] = after
        return after

    def _refused(self, reply: EndReply) -> None:
        if reply.status == "UNSEEN":  # it made no call, and nested turns of an earlier attempt have ended
            self.set_aside(self.not_deterministic("0.0"), has_state=self.keeps_state)
        else:
            super()._refused(reply)

    def has_neighbour(self, turn_id: str) -> bool:
        """True when a message of its partition that has not ended will be this turn, as far as is known."""
        partition = self._partition
        known = any(message.turn_id == turn_id for message in partition.pending.values())
        return known or not partition.handed_on_everything

    def drop(self) -> None:
        """The engine stops: the message stays in the inbox, for whoever owns the partition next."""
        self.abandoned = True
        self.stop_waiting()
        self._stop_alarm()
        self._partition.leave(self.fence.entry_id)

    # -- what the partition asks (parked.Incoming)

    def forget(self) -> None:
        """Nothing of this message will be committed here."""
        if self.abandoned:
            return
        self.abandoned = True
        self.stop_waiting()
        self._stop_alarm()
        self._partition.leave(self.fence.entry_id)
        self._calls_no_more()
        if self._calls is not None:
            self._calls.taking.stop()
        if self.turn is None:
            if self.entry is not None:
                self._services.dispatcher.withdraw(self.entry)
            return
        self._forget_agent()
        if self._closed:
            self._give_calls_up()
        else:
            self._services.dispatcher.cancel(self.turn)

    def pause(self, error: StateMismatch) -> None:
        """This program cannot go on from the state that a nested turn left: a publish waits for one that can."""
        if self.turn is not None:
            bar(self._services, self.turn.activation, error)
            self.lost_its_ground(fenced=False)

    def lost_its_ground(self, *, fenced: bool) -> None:
        """The server knows of no such turn: another worker owns the partition, or the server lost writes."""
        if fenced:
            self._services.on_lost(self._partition)
        else:
            self._partition.start_over()
        self._forget_with_those_below()  # forgotten with the partition, unless they go on under a hold
        self._partition.forget_agent(self.agent)  # what began later stands on what this one did

    def _forget_with_those_below(self) -> None:
        turn: TurnEnding | None = self
        while turn is not None:
            turn.forget()
            turn = turn._parent

    @property
    def is_open(self) -> bool:
        """True when its turn is open."""
        return self.turn is not None

    @property
    def held_turn(self) -> tuple[str, str] | None:
        """Agent and turn id, when a release of the partition must leave a hold for this turn."""
        if self.turn is None or self.turn.below is not None or self.abandoned or self.sent:
            return None
        return self.fence.agent, self.turn_id

    def forget_unless_started(self) -> None:
        """The same, for a message whose turn has not started."""
        if self.turn is None and not self._closed:
            self.forget()

    def let_go(self) -> bool:
        """Leave memory for a while, unless its turn has started or somebody's turn waits for it; True when it did."""
        if self.turn is not None or self._closed or self.entry is None or self.envelope.chain:
            return False
        self.forget()
        return True

    # -- effects of the handler

    @property
    def takes_effects(self) -> bool:
        """True while what the handler does is part of the turn; of an abandoned one nothing takes effect."""
        return not self._closed

    @property
    def version(self) -> int | None:
        """Of the state that the turn began with; None for an agent that keeps none."""
        return self._version

    def publish(
        self,
        message: Any,
        encoded: Encoded,
        topic: TopicId,
        sender: AgentId | None,
        deadline: int | None = None,
        token: CancellationToken | None = None,
    ) -> None:
        """Publish with the commit."""
        self.outbox.add(message, encoded, topic, sender, deadline, token)
