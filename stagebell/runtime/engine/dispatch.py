"""Start turns, keep account of those that are open, and know when nothing is left to do.

What holds at all times
    - At most one pump runs. It starts the turns of waiting messages in its own task; when one of them has to wait for
      something, the pump's task becomes that turn's task and another pump goes on (`current_task()` never changes
      under a handler).
    - `queued` counts the messages that wait in mailboxes, `open` holds the turns that wait for something. Both empty
      means idle: a turn that ends in its first step is over before anybody else can look.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop, CancelledError, Future, Task
from collections import deque
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any

from autogen_core import Agent

from stagebell.errors import RuntimeNotRunning
from stagebell.runtime.engine.abort import abort, loop_ends
from stagebell.runtime.engine.activation import FREE, Activation
from stagebell.runtime.engine.cancellation import Cancelling, Dependent, TokenLinks
from stagebell.runtime.engine.catalog import Catalog
from stagebell.runtime.engine.drive import Ended, drive, first_step, remaining_steps
from stagebell.runtime.engine.limit import RunningLimit
from stagebell.runtime.engine.performer import Performer
from stagebell.runtime.engine.retiring import Retiring
from stagebell.runtime.engine.turn import Entry, Turn, current_turn
from stagebell.runtime.engine.watch import Watch

logger = logging.getLogger("stagebell")

_TURNS_BETWEEN_YIELDS = 48


class Dispatcher:
    """The turns of one runtime. `grace` is in seconds: how long a cancelled handler may go on."""

    def __init__(self, catalog: Catalog, performer: Performer, *, grace: float, warn_after: float) -> None:
        self.grace = grace
        self.queued = 0
        self.open: dict[Turn, None] = {}
        self.retiring = Retiring(self.open)
        self.started = False
        self._pumps = False
        self._accepting = True  # before the first start messages wait; after a stop they are refused
        self._performer = performer
        self._ready: deque[Activation] = deque()
        self.limit = RunningLimit(self._ready)
        self._pump: Task[None] | None = None
        self._cancelling = Cancelling(grace, self.withdraw)
        self._links = TokenLinks(self.cancel)
        self._idle_waiters: list[Future[None]] = []
        self._arrival: Future[None] | None = None
        self._ended = asyncio.Event()
        self._tasks: set[Task[Any]] = set()
        self._watch = Watch(self.open, warn_after)
        self.aborted = ""

    # -- messages come in

    def enqueue(self, activation: Activation, entry: Entry, *, first: bool = False) -> None:
        """Let a message wait in an agent's mailbox (`first`: before all others) until the agent may take it."""
        # After a stop open turns have some time left; what a server sends into one of them may be what it waits for.
        if not self._accepting and (entry.receipt is None or not activation.has_nested(entry)):
            stopped = RuntimeNotRunning(f"the runtime is stopped, {activation.id} takes no messages")
            self._performer.discard(entry, stopped)
            return
        was_empty = not activation.mailbox
        activation.push(entry, first=first)
        self.queued += 1
        if activation.hosted.interrupted_by:
            self._cancelling.interrupt(activation, entry)
        # An agent whose mailbox was not empty is in the line already, or its open turn puts it there when it ends.
        if (
            (was_empty and activation.top is None)
            or activation.hosted.interleaved
            or activation.has_nested(entry)
            or (self.limit.reached and self.limit.lets_in(activation, entry))
        ):
            self._ready.append(activation)
            if self._pump is None or self._arrival is not None:
                self._wake()

    def withdraw(self, entry: Entry) -> bool:
        """Take a waiting message out of its mailbox; False when it does not wait there any more."""
        if entry.activation is None or not entry.activation.remove(entry):
            return False
        self.queued -= 1
        self._look_idle()
        return True

    def link(self, loop: AbstractEventLoop, entry: Entry) -> None:
        """Drop a waiting call when its token is cancelled."""
        if entry.token is not None:
            self._links.link(loop, entry.token, entry)

    def unlink(self, entry: Entry) -> None:
        """The call has ended."""
        if entry.token is not None:
            self._links.unlink(entry.token, entry)

    # -- turns are run

    def start(self) -> None:
        """Start turns from now on."""
        self.started = self._accepting = self._pumps = True
        self._wake()

    def stop(self, why: str = "the runtime was stopped") -> None:
        """Start no more turns, and give those who wait for one their error."""
        self.started = self._accepting = False
        for activation in self._performer.catalog.every_activation():
            for entry in list(activation.mailbox or ()):
                activation.remove(entry)
                self.queued -= 1
                self._performer.discard(entry, RuntimeNotRunning(f"{why} before the message was handled"))
            activation.mailbox = None
        self._performer.catalog.later.end(RuntimeNotRunning(f"{why} before the call was answered"))
        self._ready.clear()
        self.limit.clear()
        self._look_idle()

    def hold(self) -> None:
        """Start no more turns until `go_on`; messages wait."""
        self.started = self._pumps = False

    def go_on(self) -> None:
        """End a `hold`."""
        self.started, self._pumps = self._accepting, True
        self._wake()

    async def abort(self, why: str) -> None:
        """As `stop`, and interrupt every open turn; nothing of an agent runs afterwards, not even its `close`."""
        self.aborted, self.grace, self.retiring.aborted = why, 0.0, True
        self.stop("the runtime crashed")
        self._pumps = False
        await abort(list(self.open), list(self._tasks), why)

    async def run_next(self) -> None:
        """Start one waiting message, as soon as there is one, in a task of its own."""
        while True:
            while self._ready:
                activation = self._ready.popleft()
                entry = activation.take()
                if entry is not None:
                    self._requeue(activation)
                    self.spawn(self._run(activation, entry))
                    await asyncio.sleep(0)
                    return
            if self._arrival is None or self._arrival.done():
                self._arrival = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._arrival)

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        if self._pumps and self._pump is None and self._ready:
            self._pump = self.spawn(self._run_ready())

    async def _run_ready(self) -> None:
        me = asyncio.current_task()
        ready = self._ready
        try:
            while (ready or self.limit.let_on()) and self._pumps:
                watched = self._performer.watched
                for _ in range(_TURNS_BETWEEN_YIELDS):
                    if not ready or not self._pumps:
                        break
                    activation = ready.popleft()
                    if self.limit.reached and self.limit.holds_back(activation):
                        continue
                    entry = activation.take()
                    if entry is None:
                        continue
                    agent = activation.agent
                    if agent is None or watched or not entry.plain:
                        await self._run(activation, entry)
                    elif (rest := self._start_plain(activation, agent, entry)) is not None:
                        await rest
                    if self._pump is not me:
                        return
                await asyncio.sleep(0)
        finally:
            if self._pump is me:
                self._pump = None
                self._look_idle()

    async def _run(self, activation: Activation, entry: Entry) -> None:
        self.queued -= 1
        turn = self._open_turn(activation, entry)
        await drive(self, turn, self._performer.perform(turn, entry), entry.context.copy())
        self._raise_if_cancelled()

    def _start_plain(self, activation: Activation, agent: Agent, entry: Entry) -> Coroutine[Any, Any, None] | None:
        """As `_run`, for a message whose end nobody but the caller hears of; returns what is left to await, if any.

        Most handlers end in their first step, and then nothing but their own code was run.
        """
        self.queued -= 1
        turn = self._open_turn(activation, entry)
        work = agent.on_message(entry.message, turn)
        context = entry.context.copy()
        try:
            waiting = context.run(first_step, turn, work)
        except BaseException as error:
            self.ended(turn)
            self._performer.settle_error(turn, entry, error)
            return None
        if type(waiting) is not Ended:
            self.suspended(turn)
            return self._finish(turn, agent, entry, remaining_steps(self, turn, work, context, waiting))
        if activation.top is turn:  # nobody has seen it, so there is less to do than in `ended`
            turn.closed, activation.top = True, turn.below
        else:
            activation.pop_turn(turn)
        if activation.mailbox:
            self._requeue(activation)
        if self._idle_waiters and not self.queued:
            self._look_idle()
        if entry.is_rpc:
            self._performer.settle(turn, agent, entry, waiting.result)
        return None

    async def _finish(self, turn: Turn, agent: Agent, entry: Entry, rest: Awaitable[Any]) -> None:
        await self._performer.finish(turn, agent, entry, rest)
        self._raise_if_cancelled()

    def _raise_if_cancelled(self) -> None:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise CancelledError  # the loop is being shut down; the turn has had its error

    def _open_turn(self, activation: Activation, entry: Entry) -> Turn:
        turn = Turn(activation, entry.parent, entry.sender, entry.topic_id, entry.is_rpc, entry.token, entry.message_id)
        if activation.hosted.interrupted_by:
            turn.handles = type(entry.message)
        if entry.is_rpc:
            entry.turn, turn.reply = turn, entry.reply
        if not entry.plain:
            turn.deadline = entry.deadline
            if entry.receipt is not None:
                turn.receipt, entry.turn = entry.receipt, turn
                if self.limit.counts(entry):
                    self.limit.started(turn)
        if activation.top is None and not activation.hosted.interleaved:
            activation.top = turn
        else:
            activation.push_turn(turn)
        return turn

    def look_again(self, activation: Activation) -> None:
        """An open turn of the agent awaits a call now: what descends from it may be waiting in the mailbox."""
        self._requeue(activation)

    def bar(self, activation: Activation, why: str) -> None:
        """Let the messages of an agent wait until `unbar` with the same reason; an open turn goes on."""
        activation.barred |= {why}

    def unbar(self, activation: Activation, why: str) -> None:
        """This reason to wait is gone."""
        if why in activation.barred:
            activation.barred = (activation.barred - {why}) or FREE
            self._requeue(activation)

    def _requeue(self, activation: Activation) -> None:
        if activation.has_runnable():
            self._ready.append(activation)
            if self._pump is None or self._arrival is not None:
                self._wake()

    # -- the book-keeping around turns (see drive.Keeper)

    def suspended(self, turn: Turn) -> None:
        """A turn waits for something, and others can see it now."""
        task = asyncio.current_task()
        turn.task = task
        if task is not None:
            turn.cancelling_before = task.cancelling()
        loop = asyncio.get_running_loop()
        turn.suspended_at = loop.time()
        self.open[turn] = None
        self._watch.keep(loop)
        if turn.receipt is not None:
            turn.receipt.suspended()
        parent = turn.parent
        if parent is not None and turn.inline:
            parent.calls = parent.calls or []
            parent.calls.append(turn)
            if parent.cancelled:
                loop.call_soon(self.cancel, turn)
        if turn.has_token and (turn.is_rpc or not turn.activation.hosted.process_bound):
            self._links.link(loop, turn.cancellation_token, turn)
        if self._pump is task:
            self._pump = None
        self._requeue(turn.activation)
        self._wake()

    def ended(self, turn: Turn) -> None:
        """A turn is over."""
        activation = turn.activation
        activation.pop_turn(turn)
        if turn.suspended_at is not None:
            self._ended.set()
            self.open.pop(turn, None)
            if turn.has_token:
                self._links.unlink(turn.cancellation_token, turn)
            parent = turn.parent
            if parent is not None and parent.calls and turn in parent.calls:
                parent.calls.remove(turn)
        if turn.limited:
            self.limit.ended()
            self._wake()
        if activation.retired is not None:
            self.retiring.turn_ended(activation)
        if activation.mailbox and not loop_ends(turn):
            self._requeue(activation)
        if self._idle_waiters:
            self._look_idle()

    async def until_ended(self, turn: Turn) -> None:
        """Wait until a turn that others have seen is over."""
        while not turn.closed:
            self._ended.clear()
            await self._ended.wait()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Task[Any]:
        """A task that is kept until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a turn that outlived its caller failed", exc_info=task.exception())

    # -- cancellation

    def cancel(self, turn: Dependent) -> None:
        """Cancel a turn and every call it has open; after the grace its task, when it has not ended."""
        self._cancelling.cancel(turn)

    def expire(self, dependent: Dependent) -> None:
        """The same, because its deadline is over; a message that waits is dropped."""
        self._cancelling.expire(dependent)

    # -- idleness

    @property
    def accepting(self) -> bool:
        """True unless it was stopped."""
        return self._accepting

    @property
    def idle(self) -> bool:
        """True when no message waits and no turn is open."""
        return not self.queued and not self.open

    async def wait_idle(self) -> None:
        """Wait until no message waits and no turn is open."""
        while not self.idle:
            waiter = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    async def settle(self, grace: float) -> None:
        """Give open turns `grace` seconds to end, then cancel those that have not."""
        await self._await_end(grace)
        for turn in self._others():
            self.cancel(turn)
        await self._await_end(self.grace * 2)

    def _others(self) -> list[Turn]:
        """The open turns that can end: not a handler that stops its runtime, nor those who await it."""
        mine = current_turn.get()
        return [turn for turn in self.open if not turn.closed and (mine is None or not mine.descends_from(turn))]

    async def _await_end(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._others():
                    self._ended.clear()
                    await self._ended.wait()

    def _look_idle(self) -> None:
        if self._idle_waiters and self.idle:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
