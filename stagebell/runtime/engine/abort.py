"""The end of all turns at once, as when their process is killed."""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Iterable
from typing import Any

from stagebell.errors import RuntimeNotRunning
from stagebell.runtime.engine.outcome import set_error
from stagebell.runtime.engine.turn import Turn

_PATIENCE = 0.5  # seconds; a handler may swallow its cancellation


async def abort(turns: Iterable[Turn], tasks: Iterable[Task[Any]], why: str) -> None:
    """Interrupt turns where they wait, and end tasks; whoever awaits a turn gets `RuntimeNotRunning`."""
    ending = set(tasks)
    for turn in turns:
        set_error(turn.reply, RuntimeNotRunning(why))
        if turn.task is not None:
            ending.add(turn.task)
            # It runs in the task of its caller, who is to get the error and not a cancellation.
            turn.interrupting = turn.parent is None and turn.inline
    ending.discard(_me())
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending, timeout=_PATIENCE)


def _me() -> Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # this is a coroutine
    return task


def loop_ends(turn: Turn) -> bool:
    """True when a turn ended because its event loop is shutting down; a task started now would never run."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    task = turn.task
    if task is None or task.cancelling() <= turn.cancelling_before:
        return False
    return all(each.cancelling() for each in asyncio.all_tasks())
