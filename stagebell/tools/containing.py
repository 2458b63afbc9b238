"""Whatever a tool or a hook of it raises becomes an `Exception`, so that only a cancellation ends who called it.

Python has exceptions that are no `Exception`: `SystemExit`, `GeneratorExit`, groups, classes of users' own. One that
left a tool would end the turn without an answer, or the event loop. A cancellation passes, and so does the
`KeyboardInterrupt` of a person, which reaches the thread of the event loop alone.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, to_thread
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from autogen_core.tool_agent import ToolException

from stagebell.errors import FatalToolError, ToolError
from stagebell.tools.context import ToolContext

T = TypeVar("T")


def passes(error: BaseException) -> bool:
    """Whether it is not the tool's: a cancellation, a person's Ctrl-C, or the end of the coroutine that caught it."""
    if isinstance(error, GeneratorExit):
        return error.__traceback__ is None or error.__traceback__.tb_next is None  # else somebody below raised it
    return isinstance(error, CancelledError | KeyboardInterrupt)


def as_error(error: BaseException) -> Exception:
    """The `Exception` that stands for it; an `Exception` is itself."""
    if isinstance(error, Exception):
        return error
    if isinstance(error, ToolException):  # AutoGen's is no Exception
        return ToolError(error.content)
    if isinstance(error, SystemExit):
        return FatalToolError(f"the tool wanted to end the process (SystemExit, exit code {error.code})")
    return FatalToolError(f"the tool raised {type(error).__name__}, which is no Exception: {words_of(error)}")


def called(function: Callable[..., T], *arguments: Any) -> T:
    """Call a hook that is not async: what it raises is its own, a `CancelledError` too.

    Raises:
        Exception: what it raised, or what stands for it.
        KeyboardInterrupt: a person's.
    """
    try:
        return function(*arguments)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise as_error(error) from error


def words_of(error: BaseException) -> str:
    """Its text, or why there is none: a user's `__str__` may raise anything."""
    try:
        return str(error).strip()
    except BaseException as broken:
        if passes(broken):
            raise
        return f"its text could not be made ({type(broken).__name__})"


async def contained(work: Awaitable[Any], context: ToolContext[Any]) -> Any:
    """Await a tool so that nothing but an `Exception` comes out of it, unless it was cancelled from here."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await work
    except CancelledError:
        if context.cancellation_token.is_cancelled() or (task is not None and task.cancelling() > before):
            raise
        raise ToolError("something that the tool awaited was cancelled") from None
    except Exception:
        raise
    except BaseException as error:
        if passes(error):
            raise
        raise as_error(error) from error


async def in_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function that may block, in a thread; raises nothing but what a future can hold."""
    return await to_thread(_called, function, arguments, named)


def _called(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    try:
        return function(*arguments, **named)
    except StopIteration as error:
        raise RuntimeError("the tool raised StopIteration") from error  # as Python says it of a coroutine
    except (Exception, CancelledError):
        raise
    except BaseException as error:  # no Ctrl-C either: a person's reaches the main thread alone
        raise as_error(error) from error
