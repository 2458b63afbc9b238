"""Trials in which a worker dies at its first, its second, its third … boundary, several trials at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from tests.failure.view import View
from tests.support.servers import Server


async def boundaries_of(
    server: Server, namespace: str, trial: Callable[[View, int], Awaitable[bool]], *, at_once: int
) -> int:
    """Run trials until the worker of one lives; returns how many boundaries it had.

    Args:
        trial: in the namespace of the view, the worker is to die at its boundary of this number; False when it lived.
        at_once: how many run side by side.
    """
    numbers = count(1)
    survived: list[int] = []

    async def lane() -> None:
        while not survived:
            number = next(numbers)
            with server.client() as client:
                try:
                    if not await trial(View(client, f"{namespace}-{number}"), number):
                        survived.append(number)
                except AssertionError as error:
                    error.add_note(f"the worker was to die at its boundary number {number}")
                    raise

    async with asyncio.TaskGroup() as lanes:
        for _ in range(at_once):
            lanes.create_task(lane())
    print(f"{min(survived) - 1} boundaries")
    return min(survived) - 1
