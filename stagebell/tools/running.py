"""Work for others, a tool or a request: cancelled by its token or when its time is over, and then gone within a second.

It runs in the task of whoever waits for it, as a plain `await` would, so work that has to wait for nothing costs
nothing. Only while it waits somebody watches: the token, and the clock. When one of them says so, the task is cancelled
for the work alone, as `asyncio.timeout` does it.

Nothing can be forced to end: work that swallows its cancellation is told of in the log and left to a task of its own,
and whoever waited for it gets on.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError, Future, Task, TimerHandle
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Final

from autogen_core import CancellationToken

from stagebell.errors import FatalToolError

logger = logging.getLogger("stagebell")

GRACE: Final = 0.5  # seconds

_left_alone: set[Task[Any]] = set()

_Work = Coroutine[Any, Any, Any]
_Steps = Generator[Any, Any, Any]


class OutOfTime(TimeoutError):
    """A tool did not end within its time."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"tool {name!r} did not end within {seconds:g} seconds and was cancelled")


class CancelledItself(FatalToolError):
    """What ran cancelled the task that it ran in."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} cancelled the task that it ran in (CancelledError)")


class Stop:
    """Tells when nobody wants the result of a call any more.

    Args:
        token: cancelled then; None: never.
    """

    def __init__(self, token: CancellationToken | None) -> None:
        self._token = token
        self._future: Future[None] | None = None

    @property
    def is_set(self) -> bool:
        """True once the token was cancelled."""
        return self._token is not None and self._token.is_cancelled()

    def check(self) -> None:
        """Raises CancelledError once the token was cancelled."""
        if self._token is not None and self._token.is_cancelled():
            raise CancelledError("the call was cancelled")

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises CancelledError as soon as the token is cancelled."""
        future = self._watched()
        if future is None:
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait((future,), timeout=seconds)
            self.check()

    def watch(self, tell: Callable[[object], None]) -> None:
        """Call `tell`, soon, when the token is cancelled."""
        if (future := self._watched()) is not None:
            future.add_done_callback(tell)

    def unwatch(self, tell: Callable[[object], None]) -> None:
        """Do not call it any more."""
        if self._future is not None:
            self._future.remove_done_callback(tell)

    def _watched(self) -> Future[None] | None:
        if self._future is None and self._token is not None:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()

            def hop() -> None:  # a token calls from whatever thread cancels it
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._set)

            self._token.add_callback(hop)
        return self._future

    def _set(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


async def run_limited(
    work: _Work, name: str, *, token: CancellationToken | None, stop: Stop, seconds: float | None
) -> Any:
    """Let work be done within its time.

    Args:
        work: what is to be done.
        name: of the tool, for the log and the error.
        token: one that the work was given for itself; cancelled with it.
        stop: ends it.
        seconds: how much time it has; None for any.

    Returns:
        What it returned.

    Raises:
        OutOfTime: its time is over.
        CancelledItself: it cancelled the task that it ran in.
        asyncio.CancelledError: it was stopped, or the caller was cancelled.
        BaseException: what it raised.
    """
    watch, context = _Watch(stop, seconds), copy_context()
    try:
        try:
            waiting = watch.step(work.send, None, context)
        except StopIteration as ended:
            return ended.value  # it had to wait for nothing
        return await _drive(work, waiting, watch, name, token, context)
    except CancelledError:
        _cancel(token)
        if watch.taken and not stop.is_set:
            raise OutOfTime(name, seconds or 0.0) from None
        if watch.own and await watch.absorb() and not stop.is_set:
            raise CancelledItself(name) from None
        raise
    finally:
        watch.disarm()
        if watch.own:
            await watch.absorb()


class _Watch:
    """Cancels the task in which work waits when nobody wants it any more, or its time is over."""

    _task: Task[Any] | None = None
    _alarm: TimerHandle | None = None
    _before = 0
    fired = False
    own = 0  # so many cancellations were asked for by the work itself
    taken = False  # the cancellation was this one's, and nobody else's

    def __init__(self, stop: Stop, seconds: float | None) -> None:
        self._stop = stop
        self.seconds = seconds
        self._current = asyncio.current_task()
        self._outside = self._current.cancelling() if self._current is not None else 0

    def arm(self) -> None:
        """The work has to wait."""
        self._task = task = asyncio.current_task()
        assert task is not None
        self._before = task.cancelling()
        if self.seconds is not None:
            self._alarm = task.get_loop().call_later(self.seconds, self._fire)
        self._stop.watch(self._fire)

    def step(self, go: Callable[[Any], Any], given: Any, context: Context) -> Any:
        """Let the work go on until it waits: who cancels the task in this time is the work itself."""
        task = self._current
        if task is None:
            return context.run(go, given)
        before = task.cancelling()
        try:
            return context.run(go, given)
        finally:
            if (more := task.cancelling() - before) or self.own:
                self.own = max(0, self.own + more)

    async def absorb(self) -> bool:
        """Undo what the work asked for; False when somebody else wants the task to end as well."""
        own, self.own, task = self.own, 0, self._current
        assert task is not None
        for _ in range(own):
            task.uncancel()
        if task.cancelling() > self._outside:
            return False
        try:
            await asyncio.sleep(0)  # one that did not arrive yet arrives here
        except CancelledError:
            if task.cancelling() > self._outside:
                raise
        return True

    def take_back(self) -> None:
        """The cancellation has arrived."""
        if self._task is not None and not self.taken:
            self.taken = self._task.uncancel() <= self._before

    def disarm(self) -> None:
        """The work is over."""
        if self._task is not None:
            self._stop.unwatch(self._fire)
            if self._alarm is not None:
                self._alarm.cancel()

    def _fire(self, _: object = None) -> None:
        if self._task is not None and not self.fired:
            self.fired = True
            self._task.cancel()


@coroutine
def _drive(
    work: _Work, waiting: Any, watch: _Watch, name: str, token: CancellationToken | None, context: Context
) -> _Steps:
    """Let work that waits go on in the current task, in its context."""
    try:
        watch.arm()
        while True:
            try:
                yield waiting
            except GeneratorExit:
                context.run(work.close)
                watch.own = 0
                raise
            except BaseException as error:
                if watch.fired and isinstance(error, CancelledError):
                    watch.take_back()
                    _cancel(token)
                    yield from _wind_up(work, error, name, context)
                    raise
                waiting = watch.step(
                    work.throw, error, context
                )  # perhaps it has cancelled itself, for a time-out of its own
            else:
                waiting = watch.step(work.send, None, context)
    except StopIteration as stop:
        return stop.value


def _cancel(token: CancellationToken | None) -> None:
    """Cancel what the work was given; what somebody has hung on it may fail, which is no reason to go on."""
    if token is not None:
        try:
            token.cancel()
        except Exception:
            logger.debug("what was linked to the cancellation of a tool could not be cancelled", exc_info=True)


def _wind_up(work: _Work, error: CancelledError, name: str, context: Context) -> _Steps:
    """Tell the work to end, and wait for that for a while; what goes on then is left alone."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + GRACE
    try:
        waiting = context.run(work.throw, error)
        while loop.time() < ends_at and (yield from _done_before(loop, waiting, ends_at)):
            waiting = context.run(work.send, None)
    except StopIteration:
        logger.warning("tool %r was cancelled and returned a value: it swallows CancelledError", name)
    except BaseException as last:
        if isinstance(last, KeyboardInterrupt):
            raise
    else:
        logger.warning("tool %r was cancelled and goes on: it swallows CancelledError; nobody waits for it", name)
        task: Task[Any] = loop.create_task(_rest(work, waiting, context))
        _left_alone.add(task)
        task.add_done_callback(_forget)


def _done_before(loop: asyncio.AbstractEventLoop, waiting: Future[Any] | None, at: float) -> Generator[Any, Any, bool]:
    """Wait for what the work waits for; False when that is not done by then, or nobody can wait any more."""
    if waiting is not None:
        waiting._asyncio_future_blocking = False
    waker: Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waker.done():
            waker.set_result(None)

    timer = loop.call_at(at, wake) if waiting is not None else None
    loop.call_soon(wake) if waiting is None else waiting.add_done_callback(wake)
    try:
        yield from waker
    except CancelledError:
        return False  # cancelled once more: whoever waits has waited enough
    finally:
        if timer is not None:
            timer.cancel()
        if waiting is not None:
            waiting.remove_done_callback(wake)
    return waiting is None or waiting.done()


async def _rest(work: _Work, waiting: Any, context: Context) -> Any:
    """What is left of work that goes on, in a task of its own."""
    return await _steps(work, waiting, context)


@coroutine
def _steps(work: _Work, waiting: Any, context: Context) -> _Steps:
    try:
        while True:
            if waiting is not None:
                waiting._asyncio_future_blocking = True
            try:
                yield waiting
            except BaseException as error:
                waiting = context.run(work.throw, error)
            else:
                waiting = context.run(work.send, None)
    except StopIteration as stop:
        return stop.value


def _forget(task: Task[Any]) -> None:
    _left_alone.discard(task)
    if not task.cancelled():
        task.exception()  # so that asyncio does not complain that nobody asked
