"""Waiting in tests: for a condition, with a limit."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def eventually(condition: Callable[[], Any | Awaitable[Any]], within: float = 2.0) -> Any:
    """Wait until `condition()` is true, or fail after `within` seconds; gives what it returned."""
    end = time.monotonic() + within
    pause = 0.0
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not true within {within} s: {_text_of(condition)}")
        await asyncio.sleep(pause)
        pause = min(0.05, pause + 0.001)


async def turns_of_the_loop(count: int = 20) -> None:
    """Let everything that is ready run; for tests that something does not happen."""
    for _ in range(count):
        await asyncio.sleep(0)


def _text_of(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
