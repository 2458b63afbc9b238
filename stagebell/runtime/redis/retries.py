"""What follows when the handler of a published message raised: the same message again, after a while, or its end.
And the end of a message of any kind whose worker died again and again.

    failed ──▶ retry (script) ──▶ fewer failures than attempts ──▶ waits ──▶ a new turn, before all others of its agent
                     │
                     └──▶ as many ──▶ dead letter

What holds at all times
    - The message stays in the inbox until a commit or a dead letter removes it, and the failures are counted in the
      server: when the worker dies, the next owner goes on with the count, and tries again at once.
    - From the failure until its next attempt the agent is barred: it takes no later message before this one. Its
      neighbours do not notice, since what comes for it stays in the inbox (`holding`). Turns of an interleaved agent
      overlap in any case, so it is not barred.
    - What the failed attempt's tasks still do is no part of the next attempt, which is a `DurableTurn` of its own.
"""

from __future__ import annotations

import logging
import random
from abc import abstractmethod

from stagebell.errors import DeadLettered, MessageError
from stagebell.messages.failure import reason_text
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.clock import Alarm
from stagebell.runtime.engine.retry import Retry
from stagebell.runtime.engine.turn import Entry, Turn
from stagebell.runtime.redis.limits import LimitedTurn
from stagebell.runtime.redis.pausing import UNREADABLE
from stagebell.runtime.redis.results import RetryReply
from stagebell.runtime.redis.storage import stored_of

logger = logging.getLogger("stagebell")

MOST_ATTEMPTS = 4


class RetriedTurn(LimitedTurn):
    """The part of a `DurableTurn` that is tried again."""

    __slots__ = ("_alarm", "careful", "suspect")

    careful: bool
    suspect: bool
    _alarm: Alarm | None

    def fail_finally(self, turn: Turn, error: BaseException, *, uncounted: int = 0) -> None:
        """The handler raised, and there is no further attempt."""
        if not self._reply_to.mode:
            logger.error("%s failed to handle a message, it goes to the dead letters", self.agent, exc_info=error)
            self._services.on_publish_error(error)
        reason = error.reason if isinstance(error, DeadLettered) and self.is_given_up else ""
        has_state = stored_of(turn.activation).keeps
        self.set_aside(error, has_state=has_state, dead_letter=reason, uncounted=uncounted)

    def policy_after(self, turn: Turn, error: BaseException) -> Retry | None:
        """How the message is tried again after this error; None when it is not."""
        policy = turn.activation.hosted.retry
        if policy is None or policy.attempts < 2 or self._reply_to.mode or self._nested is not None:
            return None
        return None if policy.is_final(error) else policy

    def try_again(self, turn: Turn, error: BaseException, policy: Retry) -> None:
        """Count the failure; then wait for the next attempt, or give up."""
        activation = turn.activation
        self._bar(activation)
        self._give_calls_up()
        attempt = f"{self._services.worker}.{next(self._services.numbers)}"
        forget = tuple(self._calls.failed) if self._calls is not None else ()
        replies, savepoints = self.known_of_journal
        self._services.link.run(
            lambda scripts: scripts.retry(
                self.fence, attempt=attempt, forget=forget, known_replies=replies, known_savepoints=savepoints
            ),
            lambda outcome: self._on_counted(outcome, turn, error, policy),
        )

    def _on_counted(self, outcome: RetryReply | BaseException, turn: Turn, error: BaseException, policy: Retry) -> None:
        if isinstance(outcome, RetryReply) and outcome.status == "OK" and outcome.failures < policy.attempts:
            if not self._partition.owned:
                self.forget()  # the next attempt is the new owner's
            elif not self.abandoned and self._wait_for_next(turn, error, policy, outcome.failures + 1):
                return
        elif not self.abandoned:
            self._cannot_try_again(outcome, turn, error)
        self._unbar(turn.activation)

    def _cannot_try_again(self, outcome: RetryReply | BaseException, turn: Turn, error: BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._not_settled(outcome)
            return
        match outcome.status:
            case "OK":
                self.fail_finally(turn, error)
            case "FENCED" | "DUP" | "STALE":  # or the input is gone, and we did not consume it
                self.lost_its_ground(fenced=outcome.status == "FENCED")
            case "BADKEY":
                logger.error("%s: key %s has a wrong type, the message is not tried again", self.agent, outcome.detail)
                self.fail_finally(turn, error, uncounted=1)

    def _wait_for_next(self, turn: Turn, error: BaseException, policy: Retry, number: int) -> bool:
        try:
            entry = self._entry_again()
        except MessageError as broken:  # a validator of the user's own may change its mind
            self.fail_finally(turn, broken)
            return False
        delay = policy.delay_before(number, random.random())
        text = "%s failed to handle a message, attempt %d of %d comes in %.1f s: %s"
        logger.warning(text, self.agent, number, policy.attempts, delay, reason_text(error))
        entry.activation = turn.activation
        self.abandoned = True
        after = self.next_attempt(entry)
        clock = self._services.clock
        if not turn.activation.hosted.interleaved:
            self._partition.hold_back(self.agent, self.fence.entry_id)
        after._alarm = clock.call_at(clock.now_ms() + round(delay * 1000), after._come_back)
        if after.limit() and self._partition.ends.wanted:
            self._partition.ends.taken(after, self.fence.entry_id)
        return True

    @abstractmethod
    def next_attempt(self, entry: Entry) -> RetriedTurn:
        """Take the place of this attempt in the partition."""
        ...

    def _entry_again(self) -> Entry:
        old = self.entry
        assert old is not None
        return Entry(
            self._services.wire.decode(self.envelope),  # anew: the handler may have changed the former one
            old.context,
            sender=old.sender,
            topic_id=old.topic_id,
            is_rpc=old.is_rpc,
            message_id=old.message_id,
            receipt=old.receipt,  # until the next attempt takes its place
            deadline=old.deadline,
        )

    def _come_back(self) -> None:
        """The delay is over: the message takes its place before all others of its agent."""
        self._alarm = None
        if self.entry is not None and self.entry.activation is not None:
            self._services.dispatcher.enqueue(self.entry.activation, self.entry, first=True)
            self._unbar(self.entry.activation)
            self._partition.release(self.agent, self.fence.entry_id)

    def stop_waiting(self) -> bool:
        """The next attempt will not be made here; False when none was waited for."""
        if self._alarm is None:
            return False
        self._alarm.cancel()
        self._alarm = None
        if self.entry is not None and self.entry.activation is not None:
            self._unbar(self.entry.activation)
        self._partition.release(self.agent, self.fence.entry_id)
        return True

    # -- a publish whose agent has a state that this program cannot read, see `pausing`

    def wait_for_state(self, look_again_ms: int) -> None:
        """Wait, and let wait what comes after it for the same agent; look again after a while."""
        if not self._services.stopping:
            clock = self._services.clock
            self._alarm = clock.call_at(clock.now_ms() + look_again_ms, self.look_again)
            self._partition.hold_back(self.agent, self.fence.entry_id, UNREADABLE, answers=True)

    def look_again(self) -> None:
        """Load the agent anew, now: its state may have been put right. What waits for this message goes on waiting."""
        if self._alarm is not None and self.entry is not None and self.entry.activation is not None:
            self._alarm.cancel()
            self._alarm = None
            self._services.dispatcher.enqueue(self.entry.activation, self.entry, first=True)
            self._services.dispatcher.unbar(self.entry.activation, UNREADABLE)

    def _bar(self, activation: Activation) -> None:
        if not activation.hosted.interleaved:
            self._services.dispatcher.bar(activation, self._why)

    def _unbar(self, activation: Activation) -> None:
        self._services.dispatcher.unbar(activation, self._why)
        self._services.dispatcher.unbar(activation, UNREADABLE)

    @property
    def _why(self) -> str:
        return f"message {self.turn_id} is tried again"

    # -- a message that has killed its worker again and again

    def give_up(self) -> bool:
        """Set it aside. False when it has to take its place first, though it will not run (`is_given_up`)."""
        if self.may_be_nested:
            self.careful = self._begun = True  # what comes is no further attempt
            return False
        error = self.crashed()
        logger.error("%s does not get a message, it goes to the dead letters: %s", self.agent, error.reason)
        self.set_aside(error, has_state=self._class_keeps_state, dead_letter=error.reason)
        return True

    @property
    def is_given_up(self) -> bool:
        """True when so many workers had started it before this partition was taken over that it runs no more."""
        return self._partition.attempts.get(self.turn_id, 0) >= MOST_ATTEMPTS

    def crashed(self) -> DeadLettered:
        """The error in which such a message ends."""
        attempts = self._partition.attempts.get(self.turn_id, 0)
        reason = f"crashed: {attempts} times its worker died, or lost its lease, while it ran"
        return DeadLettered(self.agent, self.envelope.id, reason)

    async def last_savepoint(self) -> bytes:
        """What its own nested turns left at its former workers; others have seen it."""
        key = self.fence.keys.savepoints(self.turn_id)
        fields = await self._services.link.submit(lambda scripts: scripts.savepoints(key))
        return fields.get(fields.get("last", b"").decode(), b"")
