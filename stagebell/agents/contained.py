"""Code of users inside of a turn: whatever it raises is an error of its run, and nothing of it ends a turn or a worker.

A turn that is cancelled, and a coroutine that is closed, are no errors of that code: they leave as they came. What it
does to its own task is undone: a cancellation that it asked for itself is taken back.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Task
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Final, TypeVar

from autogen_core import CancellationToken

from stagebell.tools.policy import text_of

T = TypeVar("T")

_Steps = Generator[Any, Any, Any]

_CANCELLED_ITSELF: Final = "CancelledError: the code cancelled its own task, or awaited what was cancelled"


class Uncontrolled(Exception):
    """Code of a user raised what would have ended more than its run; the text names the class."""


def contained_call(work: Callable[[], T]) -> T:
    """Call a function of a user.

    Raises:
        Exception: what it raised; `Uncontrolled` for what is no `Exception`.
    """
    try:
        return work()
    except Exception:
        raise
    except BaseException as error:
        raise Uncontrolled(text_of(error)) from error


@coroutine
def contained(work: Coroutine[Any, Any, Any], token: CancellationToken) -> _Steps:
    """Await code of users, in the current task.

    Args:
        work: the code.
        token: of the turn; cancelled with it.

    Raises:
        Exception: what it raised; `Uncontrolled` for what is no `Exception`.
        asyncio.CancelledError: the turn was cancelled.
    """
    steps = _Watched()
    try:
        try:
            waiting = steps.resume(work.send, None)
        except StopIteration as ended:
            result = ended.value  # it had to wait for nothing
        else:
            result = yield from _steps(work, waiting, steps)
    except GeneratorExit:
        if steps.closed:
            raise
        raise Uncontrolled("GeneratorExit") from None
    except BaseException as error:
        if isinstance(error, CancelledError) and (token.is_cancelled() or steps.cancelled):
            raise
        yield from steps.take_back()
        if isinstance(error, Exception):
            raise
        raise Uncontrolled(_CANCELLED_ITSELF if isinstance(error, CancelledError) else text_of(error)) from error
    if steps.asked:
        yield from steps.take_back()
    return result


def _steps(work: Coroutine[Any, Any, Any], waiting: Any, steps: _Watched) -> _Steps:
    try:
        while True:
            try:
                yield waiting
            except GeneratorExit:
                steps.closed = True
                work.close()
                raise
            except BaseException as error:
                waiting = steps.resume(work.throw, error)
            else:
                waiting = steps.resume(work.send, None)
    except StopIteration as stop:
        return stop.value


class _Watched:
    """The steps of code of a user, and the cancellations of its own task that it asked for in them."""

    asked = 0
    closed = False

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "an agent works in a task"
        self._task: Task[Any] = task
        self._before = task.cancelling()

    @property
    def cancelled(self) -> bool:
        """True when somebody else has cancelled the task."""
        return self._task.cancelling() > self._before + self.asked

    def resume(self, step: Callable[[Any], Any], value: Any) -> Any:
        """Make a step; what it waits for."""
        before = self._task.cancelling()
        try:
            return step(value)
        finally:
            asked = self._task.cancelling() - before
            if asked:
                self.asked = max(0, self.asked + asked)

    def take_back(self) -> _Steps:
        """Let a cancellation that the code asked for arrive, and forget it."""
        if self.asked:
            try:
                yield None
            except CancelledError:
                if self.cancelled:
                    raise
            for _ in range(self.asked):
                self._task.uncancel()
