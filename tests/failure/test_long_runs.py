"""Long tasks outlive the workers that work on them, killed at random: each goes on from its last step to its end."""

from __future__ import annotations

import asyncio
import random

import pytest

from stagebell import Publisher
from stagebell.agents.runs import Runs
from tests.failure.processes import Workers
from tests.failure.runners import STEPS, marks_of
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]


async def with_kills(server: Server, workers: Workers, view: View, seed: int, *, runs: int, kills: int) -> None:
    """Every run ends well, and each of its steps has left one mark."""
    chance = random.Random(seed)
    running = await workers.start("runners", 2, lease=1.0)
    marks = marks_of(workers.namespace)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        started = [await Runs(publisher).start("runner", "go", conversation=f"c{n}") for n in range(runs)]
        results = asyncio.gather(*(handle.result() for handle in started))
        for kill in range(kills):
            wanted = int(runs * STEPS * (kill + chance.uniform(0.1, 0.9)) / kills)
            await eventually(lambda wanted=wanted: view.client.hlen(marks) >= wanted or results.done(), within=30)
            victim = running.pop(chance.randrange(len(running)))
            victim.kill()
            running.append(await workers.spawn("runners", lease=1.0).ready())
        for result in await asyncio.wait_for(results, 40):
            assert (result.status, result.output, result.steps) == ("succeeded", f"{STEPS} marks", STEPS + 1), seed
    made = view.client.hgetall(marks)
    assert len(made) == runs * STEPS, seed
    assert set(made.values()) == {b"1"}, seed
    await eventually(lambda: view.backlog() == 0 and not view.left_behind(), within=10)


@pytest.mark.parametrize("seed", [1])
async def test_runs_go_on_where_their_workers_died(server: Server, workers: Workers, view: View, seed: int) -> None:
    await with_kills(server, workers, view, seed, runs=12, kills=2)


@pytest.mark.torture
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(100, 115))
async def test_many_kills_of_long_runs(server: Server, workers: Workers, view: View, seed: int) -> None:
    await with_kills(server, workers, view, seed, runs=40, kills=5)
