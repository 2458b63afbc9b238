"""A tool at work: cancelled by its token, by its caller or when its time is over, and then gone within a second.

A tool cannot be forced to end: one that swallows its cancellation is told of in the log and left alone, and whoever
waited for it gets on.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError, Future, Task
from collections.abc import Coroutine
from typing import Any, Final

from autogen_core import CancellationToken

logger = logging.getLogger("stagebell")

GRACE: Final = 0.5  # seconds

_left_alone: set[Task[Any]] = set()


class OutOfTime(TimeoutError):
    """A tool did not end within its time."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"tool {name!r} did not end within {seconds:g} seconds and was cancelled")


class Stop:
    """Tells when nobody wants the result of a call any more.

    Args:
        token: cancelled then; None: never.
    """

    def __init__(self, token: CancellationToken | None) -> None:
        self._token = token
        self._future: Future[None] | None = None
        if token is not None:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()

            def hop() -> None:  # a token calls from whatever thread cancels it
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._set)

            token.add_callback(hop)

    @property
    def others(self) -> tuple[Future[None], ...]:
        """What to wait for besides the work."""
        return () if self._future is None else (self._future,)

    def check(self) -> None:
        """Raises CancelledError once the token was cancelled."""
        if self._token is not None and self._token.is_cancelled():
            raise CancelledError("the call was cancelled")

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises CancelledError as soon as the token is cancelled."""
        if self._future is None:
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait((self._future,), timeout=seconds)
            self.check()

    def _set(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


async def run_limited(
    work: Coroutine[Any, Any, Any], name: str, *, token: CancellationToken, stop: Stop, seconds: float | None
) -> Any:
    """Run a tool in a task of its own.

    Args:
        work: the tool at work.
        name: of the tool.
        token: the one that the tool was given; cancelled with it.
        stop: ends it.
        seconds: how much time it has; None for any.

    Returns:
        What it returned.

    Raises:
        OutOfTime: its time is over.
        asyncio.CancelledError: it was stopped, or the caller was cancelled.
        BaseException: what it raised.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task, *stop.others), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except CancelledError:
        token.cancel()
        await _end(task, name)
        raise
    if task in done:
        return task.result()
    token.cancel()
    await _end(task, name)
    stop.check()
    raise OutOfTime(name, seconds or 0.0)


async def _end(task: Task[Any], name: str) -> None:
    task.cancel()
    try:
        await asyncio.wait((task,), timeout=GRACE)
    finally:
        if not task.done():
            _left_alone.add(task)
            task.add_done_callback(_forget)
            logger.warning("tool %r was cancelled and goes on: it swallows CancelledError; nobody waits for it", name)
        elif not task.cancelled() and task.exception() is None:
            logger.warning("tool %r was cancelled and returned a value: it swallows CancelledError", name)


def _forget(task: Task[Any]) -> None:
    _left_alone.discard(task)
    if not task.cancelled():
        task.exception()  # so that asyncio does not complain that nobody asked
