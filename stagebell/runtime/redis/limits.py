"""A message that is ended before its time: its caller waits no more, or its deadline is over.

One that waits is settled without running; the turn of one that runs is cancelled, after the grace its task as well, and
what it did is discarded, whatever its handler returns. Its caller gets `CancelledError` or `DeadlineExceeded`, if it
still waits. Of a publish, one that came too late goes to the dead letters; one that was cancelled is gone, as whoever
published it wanted. Neither is tried again.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from asyncio import CancelledError
from collections.abc import Sequence

from stagebell.errors import DeadlineExceeded, NonDeterministicReplay
from stagebell.messages.ids import call_id
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.turn import Entry, Turn
from stagebell.runtime.redis.endings import TurnEnding
from stagebell.runtime.redis.given_up import given_up
from stagebell.runtime.redis.keys import leased_keys
from stagebell.runtime.redis.results import OpenRecord
from stagebell.runtime.redis.storage import Stored, stored_of

logger = logging.getLogger("stagebell")


class LimitedTurn(TurnEnding):
    """The part of a `DurableTurn` that deals with an end before its time; `entry` is its message in the mailbox."""

    __slots__ = ("_begun", "_ended_by", "entry")

    entry: Entry | None
    _begun: bool
    _ended_by: str

    @property
    def caller_stream(self) -> str:
        """The stream on which a caller outside of all turns waits for the reply; empty when none does."""
        return self._reply_to.key if self._reply_to.mode == "stream" else ""

    @property
    def known_of_journal(self) -> tuple[int, int]:
        """How many replies and savepoints this attempt knows of."""
        return (0, 0) if self._calls is None else (self._calls.known_replies, self._calls.known_savepoints)

    def limit(self) -> bool:
        """Give the message its deadline; False when that is over, and the message settled."""
        deadline, clock = self.envelope.deadline, self._services.clock
        if deadline is None:
            return True
        if deadline <= clock.now_ms():
            self.stop_waiting()
            self._ended_by = "deadline"
            if self.has_a_place:
                self._end_calls()
                return True
            self.settle_early(has_state=self._class_keeps_state)
            return False
        self._deadline_alarm = clock.call_at(deadline, lambda: self.end_early("deadline"))
        return True

    @property
    def ended_early(self) -> bool:
        """True when it is ended before its time, or has been."""
        return bool(self._ended_by)

    def ended_while_it_waited(self) -> bool:
        """The same for a turn that begins now: its deadline may be over, and the alarm about to go off."""
        deadline = self.envelope.deadline
        if deadline is not None and not self._ended_by and deadline <= self._services.clock.now_ms():
            self._ended_by = "deadline"
        return bool(self._ended_by)

    @property
    def has_a_place(self) -> bool:
        """True when it has to take its turn, though it will not run.

        What nested turns of its own left at a former worker stays, and others of its agent stand on that: it ends
        before them, and before its agent is loaded for them.
        """
        return self.may_be_nested or (self._partition.had_savepoints(self.turn_id) and self._class_keeps_state)

    @property
    def may_be_nested(self) -> bool:
        """True when a turn of the same agent that is to come, or is open, may let it in.

        Then it has to take its place there, though it will not run: what nested turns of its own left at a former
        worker belongs to the turn below it, where that stands.
        """
        heads = {link.partition(".")[0] for link in self.envelope.chain} if self._class_keeps_state else set[str]()
        messages = self._partition.pending.values() if heads else ()
        return any(
            each.turn_id in heads and each.agent == self.agent and not (isinstance(each, TurnEnding) and each.sent)
            for each in messages
        )

    def end_early(self, why: str, wish: str = "") -> None:
        """End the message: "cancel" or "deadline"; does nothing when it has ended.

        Args:
            wish: the entry of `ctl` that asks for it, without which it is not to be ended.
        """
        entry, dispatcher = self.entry, self._services.dispatcher
        if self._closed or self.abandoned or self._ended_by or entry is None:
            return
        bound = entry.activation is not None and entry.activation.hosted.process_bound
        if bound and why == "cancel" and not entry.is_rpc:
            return  # as AutoGen's agents do that are bound to their process
        turn = entry.turn
        if turn is None and self.has_a_place:
            self._ended_by, self.wish = why, wish
            self._end_calls()
        elif dispatcher.withdraw(entry) or self.stop_waiting():
            self._ended_by, self.wish = why, wish
            self.settle_early(has_state=self._class_keeps_state)
        elif turn is not None and not (bound and not turn.is_rpc):
            self._ended_by, self.wish = why, wish
            dispatcher.cancel(turn)
        # else: what is bound to its process finishes the publishes that it has begun

    def interrupt(self, entry: Entry) -> None:
        """A message has come for which the turn is given up, unless the turn itself has led to it."""
        by: object = entry.receipt
        if not isinstance(by, TurnEnding) or all(link.partition(".")[0] != self.turn_id for link in by.envelope.chain):
            self.end_early("cancel")

    async def on_top(self, turn: Turn, stored: Stored | None) -> bool:
        """The handler has ended: let nested turns end that nobody awaits any more, since what they do belongs to it.

        Returns:
            False when the turn was abandoned meanwhile.
        """
        activation = turn.activation
        keeps = stored is not None and stored.keeps
        if keeps and activation.top is not turn and not activation.hosted.interleaved:
            if self._calls is not None:
                self._calls.let_no_more_in()
            while (above := activation.top) is not None and above is not turn and not (turn.closed or self._is_over()):
                if not await self._outlasts(above):
                    break
        return not self._is_over()

    async def _outlasts(self, above: Turn) -> bool:
        """Wait for the end of a nested turn; False when this one is interrupted again and again meanwhile."""
        for _ in range(2):  # the grace of a cancelled turn is over at about the same time as that of its nested turns
            try:
                await self._services.dispatcher.until_ended(above)
            except CancelledError:
                continue
            return True
        return False

    def _let_parent_go_on(self) -> None:
        """Of a nested turn that ends: its parent takes what has come in the meantime."""
        if self._below is not None:
            self._below.taking.nested_ended(self.turn_id)

    def _is_over(self) -> bool:
        return self.abandoned

    def pass_over(self) -> None:
        """Consume a publish that the agent does not handle."""
        self._closed = self.sent = True
        self._services.link.run(lambda scripts: scripts.commit(self.fence, version=None), self._on_failed)

    def not_deterministic(self, k: str) -> NonDeterministicReplay:
        """The error of a turn that ran again and made another call in this place."""
        return NonDeterministicReplay(self.agent, k)

    @abstractmethod
    def stop_waiting(self) -> bool:
        """Wait no more for the next attempt; False when it does not wait."""
        ...

    def settle_early(self, *, has_state: bool) -> None:
        """It was ended early, and does not run, or runs no more: tell its caller, or let it go.

        Calls that it made here have ended with its turn. Those of an attempt at a former owner, or before a retry, are
        known to the journal alone, and end with it.
        """
        ran_elsewhere = not self._begun or self.turn_id in self._partition.attempts
        if not ran_elsewhere or self._nested is not None:  # what a nested turn leaves must go before its parent goes on
            self._settle_now(has_state)
            return
        self._closed = self.sent = True
        self._services.link.run(
            lambda scripts: scripts.open_calls(self.fence), lambda found: self._settle_with(found, has_state)
        )

    def _end_calls(self) -> None:
        """It takes its place when it can; its calls end now, since what it waits for may wait for one of them."""
        self._services.link.run(lambda scripts: scripts.open_calls(self.fence), self._end_all)

    def _end_all(self, calls: Sequence[OpenRecord] | BaseException) -> None:
        for call in () if isinstance(calls, BaseException) or self.abandoned else calls:
            self._end_recorded(call)

    def _settle_with(self, calls: Sequence[OpenRecord] | BaseException, has_state: bool) -> None:
        if isinstance(calls, BaseException):
            self._not_settled(calls)
        elif not self.abandoned:
            self._end_all(calls)
            self._settle_now(has_state)

    def _end_recorded(self, call: OpenRecord) -> None:
        try:
            keys = leased_keys(call.tag)
        except ValueError:
            return  # a foreign hand wrote it
        record = given_up(call_id(self.turn_id, call.k), "", 0.0)
        self._services.link.run(
            lambda scripts: scripts.end_call(
                keys,
                turn_id=call.turn_id,
                why="cancel",
                entry_id=call.entry_id,
                caller=self.fence,
                k=call.k,
                failure=record,
                wish=self.wish,
            ),
            lambda outcome: None,  # a refusal is the answer to what follows, too
        )

    @property
    def _class_keeps_state(self) -> bool:
        hosted = self._services.catalog.types.get(self.agent.type)
        return hosted is not None and stored_of(hosted.live.get(self.agent.key) or Activation(hosted, self.agent)).keeps

    def _settle_now(self, has_state: bool) -> None:
        error, dead_letter = self._early_end(), ""
        if self._reply_to.mode:
            pass
        elif self._ended_by == "deadline":
            dead_letter = str(error)
            logger.warning("a publish to %s goes to the dead letters: %s", self.agent, error)
        else:
            logger.info("a publish to %s was cancelled", self.agent)
        self.set_aside(error, has_state=has_state, dead_letter=dead_letter, drops=True)

    def _early_end(self) -> BaseException:
        if self._ended_by == "deadline":
            return DeadlineExceeded(self.agent, self.envelope.deadline or self._services.clock.now_ms())
        return CancelledError(f"the message to {self.agent} was cancelled")
