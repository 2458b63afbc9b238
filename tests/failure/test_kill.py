"""A worker is killed at any moment: each message takes effect once, in order, and each caller is answered."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from stagebell import Publisher
from tests.failure.history import Load, check
from tests.failure.processes import Worker, Workers
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

GRACE = 1.0  # half a second, and as much again for a machine that is busy with other tests


async def recovery(view: View, victim: Worker) -> float:
    """Kill a worker; returns the seconds until the last of its partitions has another owner."""
    name = view.worker_of(victim.pid)
    assert name
    killed = victim.kill()
    lost = view.owned_by(name)
    while left := [key for key, owner in view.owners().items() if key in lost and owner == name]:
        assert time.monotonic() - killed < 20, f"after 20 s nobody has taken {left[:5]}"
        await asyncio.sleep(0.01)
    return time.monotonic() - killed


async def at_rest(view: View) -> None:
    """Wait until nothing waits any more, and see that nothing was left behind."""
    await eventually(lambda: view.backlog() == 0, within=15)
    await eventually(lambda: not view.left_behind(), within=5)
    assert not view.against_the_list()


async def run_with_kills(server: Server, workers: Workers, view: View, seed: int, lease: float, kills: int) -> None:
    """One run of 2,000 messages; returns when everything is at rest and checked."""
    chance = random.Random(seed)
    running = await workers.start("audit", 2, lease=lease)
    times: list[float] = []
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        load = Load(publisher, seed)
        run = asyncio.create_task(load.run())
        for kill in range(kills):
            moment = load.total * (kill + chance.uniform(0.05, 0.95)) / kills
            await eventually(lambda moment=moment: load.sent >= moment or run.done(), within=30)
            owning = [worker for worker in running if view.owned_by(view.worker_of(worker.pid))]
            victim = chance.choice(owning)
            running.remove(victim)
            running.append(workers.spawn("audit", lease=lease))
            times.append(await recovery(view, victim))
            await running[-1].ready()
        await run
        await at_rest(view)
    print(f"seed {seed}, lease {lease}: recovered in {[f'{t:.2f}' for t in times]} s")
    check(view, [load])
    assert max(times) <= lease + GRACE, f"seed {seed}: {times}"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_each_message_takes_effect_once_and_in_order_whenever_a_worker_is_killed(
    server: Server, workers: Workers, view: View, seed: int
) -> None:
    """I3: state, outputs, reply and the removal of the input change together."""
    await run_with_kills(server, workers, view, seed, lease=1.0, kills=1 + seed % 3)


async def test_recovery_with_the_default_lease(server: Server, workers: Workers, view: View) -> None:
    """I17, I18: recovered within the lease and half a second, and at rest nothing is left behind."""
    await run_with_kills(server, workers, view, seed=11, lease=3.0, kills=1)


@pytest.mark.torture
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(100, 130))
async def test_many_kills(server: Server, workers: Workers, view: View, seed: int) -> None:
    await run_with_kills(server, workers, view, seed, lease=1.0, kills=4)
