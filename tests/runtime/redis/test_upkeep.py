"""What a process looks after now and then ends when the process does, whatever its chores do."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from stagebell.runtime.redis.upkeep import Upkeep

pytestmark = pytest.mark.runtime


async def test_a_chore_that_swallows_the_cancel_does_not_keep_it_going() -> None:
    upkeep, entered = Upkeep(period=0.0), asyncio.Event()

    async def chore() -> None:
        entered.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    upkeep.chores.append(chore)
    upkeep.start()
    await asyncio.wait_for(entered.wait(), 5)
    await asyncio.wait_for(upkeep.close(), 5)
