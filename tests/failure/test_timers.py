"""The owner of timers is killed before, or while, they are due: each message comes exactly once."""

from __future__ import annotations

import asyncio
import random
from itertools import cycle

import pytest
from autogen_core import AgentId, TopicId

from stagebell import Publisher
from tests.failure.agents import DONE, Noted
from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server, available_kinds
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

TIMERS = 60


async def run_with_kill(server: Server, workers: Workers, view: View, chance: random.Random, pause: float) -> None:
    """Set timers that are due over half a second, kill a worker `pause` seconds after the first; check all."""
    running = await workers.start("reminders", 2, lease=0.6)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        for number in range(TIMERS):
            to = AgentId("collector", f"c{number % 5}") if number % 3 else TopicId(DONE, f"t{number % 5}")
            delay = 0.5 + chance.uniform(0.0, 0.5)
            await publisher.schedule(Noted(sender="client", number=number), to, delay=delay)
        await asyncio.sleep(pause)
        victim = chance.choice([worker for worker in running if view.owned_by(view.worker_of(worker.pid))])
        victim.kill()
        await eventually(lambda: view.timers() == 0 and view.backlog() == 0 and not view.left_behind(), 15)
    states = [*view.states("collector").values(), *view.states("tally").values()]
    assert sorted(number for state in states for number in state["heard"]["client"]) == list(range(TIMERS))
    assert not view.dead_letters()
    assert not view.against_the_list()


@pytest.mark.parametrize(
    ("server", "pause"), list(zip(cycle(available_kinds()), [0.0, 0.5], strict=False)), indirect=["server"]
)
async def test_a_killed_owner_neither_loses_nor_doubles_what_is_due(
    server: Server, workers: Workers, view: View, pause: float
) -> None:
    await run_with_kill(server, workers, view, random.Random(f"{pause}"), pause)


@pytest.mark.torture
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(20))
async def test_many_kills(server: Server, workers: Workers, view: View, seed: int) -> None:
    chance = random.Random(seed)
    await run_with_kill(server, workers, view, chance, chance.uniform(0.3, 1.1))
