"""Deadlines: the moment after which nobody waits for an answer, handed down from each message to those it leads to.

The one that counts for a message is the earliest of all: of the `deadline` blocks around it, and of the turn that sends
it. It is a time of day in milliseconds, so that it means the same in another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from stagebell.errors import DeadlineExceeded
from stagebell.runtime.engine.clock import Alarm, Clock, SystemClock
from stagebell.runtime.engine.turn import Entry, Turn, current_turn

given_deadline: ContextVar[int | None] = ContextVar("stagebell_deadline", default=None)
"""What the `deadline` blocks around the running code say, in milliseconds since the epoch."""

_system_clock = SystemClock()


@contextmanager
def deadline(seconds: float, *, clock: Clock | None = None) -> Generator[None, None, None]:
    """Messages sent inside this block, and all that they lead to, have to be answered within `seconds`.

    A call that is not answered by then ends in `DeadlineExceeded`, and its handler is cancelled, in whatever process it
    runs; a message that still waits by then is not handled any more. Of several blocks, and of the deadline of the
    message that is being handled, the earliest counts. It limits messages alone: for other work there is
    `asyncio.timeout`.

    Args:
        seconds: from now on; 0 or less is over at once.
        clock: the time of day; without one, that of the runtime whose handler this is, else that of this machine.
    """
    at = (clock or _clock()).now_ms() + round(seconds * 1000)
    outer = given_deadline.get()
    token = given_deadline.set(at if outer is None or at < outer else outer)
    try:
        yield
    finally:
        given_deadline.reset(token)


def remaining() -> float | None:
    """How many seconds are left for the running code, by its deadlines; 0.0 when it is over, None without any."""
    at = current_deadline()
    return None if at is None else max(0.0, (at - _clock().now_ms()) / 1000)


def now_ms() -> int:
    """The time of day for the running code, in milliseconds since the epoch: by the clock of its runtime."""
    return _clock().now_ms()


def current_deadline() -> int | None:
    """The deadline of a message that the running code sends now."""
    turn = current_turn.get()
    if turn is None or turn.deadline is None or turn.closed:
        return given_deadline.get()
    return deadline_of(turn)


def deadline_of(caller: Turn | None) -> int | None:
    """The deadline of a message that `caller`, or code outside of all turns, sends now."""
    given = given_deadline.get()
    if caller is None or caller.deadline is None:
        return given
    return caller.deadline if given is None or caller.deadline < given else given


@asynccontextmanager
async def ended_by(deadline: int, clock: Clock, recipient: object) -> AsyncGenerator[None, None]:
    """Cancel what is awaited inside this block at the deadline.

    Raises:
        DeadlineExceeded: the deadline was over before the block was left.
    """
    if deadline <= clock.now_ms():
        raise DeadlineExceeded(str(recipient), deadline)
    loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
    try:
        async with limit:
            alarm = clock.call_at(deadline, lambda: limit.reschedule(loop.time()))
            try:
                yield
            finally:
                alarm.cancel()
    except TimeoutError:
        if limit.expired():
            raise DeadlineExceeded(str(recipient), deadline) from None
        raise


class Deadlines:
    """Ends what goes on beyond its deadline, in one process."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.expire: Callable[[Turn | Entry], None] = _not_set

    def guard(self, entry: Entry, deadline: int) -> Alarm:
        """Give a call that waits in memory its deadline; cancel the alarm when the call has ended.

        Raises:
            DeadlineExceeded: it is over already.
        """
        assert entry.activation is not None
        recipient = entry.activation.id
        if deadline <= self.clock.now_ms():
            raise DeadlineExceeded(recipient, deadline)
        entry.deadline, entry.plain = deadline, False

        def over() -> None:
            if entry.reply is not None and not entry.reply.done():
                entry.reply.set_exception(DeadlineExceeded(recipient, deadline))
                self.expire(entry)

        return self.clock.call_at(deadline, over)

    @contextmanager
    def limit(self, turn: Turn, deadline: int) -> Generator[None, None, None]:
        """Cancel the turn of a publish at its deadline.

        Raises:
            DeadlineExceeded: it is over already.
        """
        if deadline <= self.clock.now_ms():
            turn.expired = True
            raise DeadlineExceeded(turn.activation.id, deadline)
        alarm = self.clock.call_at(deadline, lambda: self.expire(turn))
        try:
            yield
        finally:
            alarm.cancel()


def _not_set(_: object) -> None:
    """Takes the place of what the dispatcher does."""


def _clock() -> Clock:
    turn = current_turn.get()
    return _system_clock if turn is None else turn.activation.hosted.clock
