"""Tell a cancellation that a handler's own `asyncio.TaskGroup` asked for from one that comes from outside.

A group whose child fails while the group waits for its children cancels its parent task, and up to Python 3.12 it does
not take that cancellation back: `Task.cancelling()` stays one too high for the rest of the task's life.
"""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any

_GROUP_EXIT = TaskGroup.__aexit__.__code__


def cancelled_by_own_group(work: Coroutine[Any, Any, Any]) -> bool:
    """True when a coroutine waits at the end of a task group that has cancelled it."""
    current: object = work
    while isinstance(current, CoroutineType):
        frame = current.cr_frame
        if frame is not None and frame.f_code is _GROUP_EXIT:
            return bool(getattr(frame.f_locals.get("self"), "_parent_cancel_requested", False))
        current = current.cr_await
    return False
