"""Drive a handler's coroutine, in the task of whoever is there already.

A task per turn would cost more than all the rest of a call. So the first step of a handler runs at once, in the
caller's task (or the pump's), in a copied context. Most handlers end in that step. One that waits goes on in the same
task: what it waits for is handed to the event loop through the caller, as a plain `await` would do. `current_task()` is
therefore the same from the handler's first line to its last, which time-outs and cancel scopes rely on.

What each interruption does
    - The caller's task is cancelled (a time-out around the call): the handler gets the `CancelledError` where it waits.
      When it was meant for a time-out inside the handler, the handler deals with it and goes on. Otherwise the turn's
      token is set; a handler that goes on nevertheless is left to a task of its own after the grace, and the caller
      gets its error.
    - What it waits for raises `GeneratorExit`: the task ends with that, and the handler gets a `RuntimeError`.
    - The turn's token is cancelled: the dispatcher gives the handler its grace, then cancels the task in the turn's
      name (`turn.interrupting`); the count of cancellations is taken back here, as `asyncio.timeout` does.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Future
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, Protocol

from stagebell.runtime.engine.task_groups import cancelled_by_own_group
from stagebell.runtime.engine.turn import Turn, current_turn, handling_agent

Step = Generator[Any, Any, Any]


class Keeper(Protocol):
    """The book-keeping around turns; the dispatcher."""

    grace: float

    def suspended(self, turn: Turn) -> None: ...

    def ended(self, turn: Turn) -> None: ...

    def cancel(self, turn: Turn) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


@coroutine
def drive(keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context) -> Step:
    """Run `work`, the handling of `turn`, to its end in the current task; awaitable.

    Returns what `work` returns and raises what it raises. The turn must have been pushed; it is popped here.
    """
    try:
        waiting = context.run(first_step, turn, work)
    except BaseException:
        keeper.ended(turn)
        raise
    if type(waiting) is Ended:
        keeper.ended(turn)
        return waiting.result
    keeper.suspended(turn)
    return (yield from _steps(keeper, turn, work, context, waiting))


class Ended:
    """A handler returned in its first step. Cheaper than an exception that has to leave the context."""

    __slots__ = ("result",)

    def __init__(self, result: Any) -> None:
        self.result = result


_ENDED_WITH_NONE = Ended(None)


def first_step(turn: Turn, work: Coroutine[Any, Any, Any]) -> Any:
    """Run the first step of `work` inside the turn's own context (call it with `context.run`).

    Returns what the handler waits for, or `Ended` with its result. Raises what the handler raises.
    """
    current_turn.set(turn)
    handling_agent.set(turn.activation.id)
    try:
        return work.send(None)
    except StopIteration as stop:
        return _ENDED_WITH_NONE if stop.value is None else Ended(stop.value)


def _steps(keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context, waiting: Any) -> Step:
    adopted = False
    turn.work = work
    try:
        while True:
            try:
                yield waiting
            except GeneratorExit:
                adopted = _closed(keeper, turn, work, context, waiting)
                raise
            except BaseException as error:
                waiting = yield from _interrupted(keeper, turn, work, context, error)
            else:
                waiting = context.run(work.send, None)
    except StopIteration as stop:
        return stop.value
    except _Finished as finished:
        return finished.value
    except _Left as left:
        adopted = True
        keeper.spawn(_adopted(keeper, turn, work, context, left.waiting))
        raise CancelledError from None
    except CancelledError:
        keeper.cancel(turn)
        raise
    finally:
        _take_back_interruption(turn)
        if not adopted:
            turn.work = None
            keeper.ended(turn)


def _interrupted(
    keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context, error: BaseException
) -> Step:
    """Hand an error to the handler where it waits; return what it waits for next.

    Raises:
        _Finished: the handler has returned.
        _Left: it goes on although somebody outside waits for its end, and its grace is over.
    """
    own = isinstance(error, CancelledError) and cancelled_by_own_group(work)
    try:
        waiting = context.run(work.throw, error)
    except StopIteration as stop:
        raise _Finished(stop.value) from None
    if own:
        _accept_cancellations(turn)
    if turn.inline and _cancellation_pending(turn):
        waiting = yield from _linger(keeper, turn, work, context, waiting)
        if _cancellation_pending(turn):
            keeper.cancel(turn)
            raise _Left(waiting)
    return waiting


@coroutine
def remaining_steps(keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context, waiting: Any) -> Step:
    """Go on with `work` after its first step, which left it waiting for `waiting`; awaitable."""
    return (yield from _steps(keeper, turn, work, context, waiting))


class _Finished(BaseException):
    """A handler returned; a generator may not let `StopIteration` through."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Left(BaseException):
    """The caller leaves a handler that waits for `waiting`."""

    def __init__(self, waiting: Any) -> None:
        self.waiting = waiting


def _linger(keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context, waiting: Any) -> Step:
    """Let a handler go on in the caller's task while a cancellation is pending, for its grace at most.

    It ends early when the handler turns out to have been cancelled by a time-out of its own, which took its
    cancellation back. Returns what the handler waits for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (0.0 if turn.interrupting else keeper.grace)
    while _cancellation_pending(turn):
        if waiting is None:
            if loop.time() >= deadline or not (yield from _yielded()):
                return None
        elif not (yield from _done_before(loop, waiting, deadline)):
            return waiting
        try:
            waiting = context.run(work.send, None)
        except StopIteration as stop:
            raise _Finished(stop.value) from None
    if waiting is not None:
        waiting._asyncio_future_blocking = True  # the caller hands it to the event loop again
    return waiting


def _yielded() -> Generator[Any, Any, bool]:
    try:
        yield None
    except CancelledError:
        return False  # cancelled once more: the caller has waited enough
    return True


def _done_before(loop: asyncio.AbstractEventLoop, waiting: Future[Any], deadline: float) -> Generator[Any, Any, bool]:
    waiting._asyncio_future_blocking = False
    waker: Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waker.done():
            waker.set_result(None)

    waiting.add_done_callback(wake)
    timer = loop.call_at(deadline, wake)
    try:
        yield from waker
    except CancelledError:
        return False  # cancelled once more: the caller has waited enough
    finally:
        timer.cancel()
        waiting.remove_done_callback(wake)
    return waiting.done()


def _closed(keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context, waiting: Any) -> bool:
    """The task is being closed; True when the handler goes on in one of its own.

    That is so when nobody wants its end, and what it waited for has raised `GeneratorExit`: Python then closes all that
    waits for it, from the task's first coroutine on.
    """
    failed = waiting.exception() if waiting is not None and waiting.done() and not waiting.cancelled() else None
    if not isinstance(failed, GeneratorExit):
        context.run(work.close)
        return False
    keeper.spawn(_raised_in(keeper, turn, work, context, failed))
    return True


async def _raised_in(
    keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context, error: BaseException
) -> None:
    """Go on with a turn that waited for something which raised `GeneratorExit`; to its code that is an error."""
    turn.task, turn.inline, turn.interrupting = asyncio.current_task(), False, False
    raised = RuntimeError(f"what was awaited raised {error!r}")
    raised.__cause__ = error
    try:
        waiting = context.run(work.throw, raised)
    except StopIteration:
        keeper.ended(turn)
    except BaseException:
        keeper.ended(turn)
        raise
    else:
        await remaining_steps(keeper, turn, work, context, waiting)


async def _adopted(keeper: Keeper, turn: Turn, work: Coroutine[Any, Any, Any], context: Context, waiting: Any) -> None:
    """Go on with a turn whose caller has left, in a task of its own; its result goes nowhere."""
    turn.task, turn.inline, turn.interrupting = asyncio.current_task(), False, False
    if waiting is not None:
        waiting._asyncio_future_blocking = True
    await remaining_steps(keeper, turn, work, context, waiting)


def _cancellation_pending(turn: Turn) -> bool:
    """True when the task was cancelled for somebody outside the handler, who still waits for it to take effect."""
    return turn.task is not None and turn.task.cancelling() > turn.cancelling_before


def _accept_cancellations(turn: Turn) -> None:
    """What the task counts now is nobody's outside: a task group does not always take its own cancellation back."""
    task, current = turn.task, turn
    while task is not None and current.task is task:
        current.cancelling_before = task.cancelling()
        if current.parent is None:
            return
        current = current.parent


def _take_back_interruption(turn: Turn) -> None:
    if turn.interrupting and turn.task is not None:
        turn.interrupting = False
        turn.task.uncancel()
