"""The line between worker and server is bad: still each message takes effect once, and everybody connects again."""

from __future__ import annotations

import asyncio
import random

import pytest
from autogen_core import TopicId

from stagebell import Publisher
from stagebell.testing import FaultyConnection
from tests.failure.agents import File
from tests.failure.history import Load, check
from tests.failure.processes import Workers
from tests.failure.troubles import EVENTS
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]


async def at_rest(view: View) -> None:
    await eventually(lambda: view.backlog() == 0, within=15)
    await eventually(lambda: not view.left_behind(), within=3)


async def run_in_a_storm(server: Server, workers: Workers, view: View, seed: int, every: float = 0.05) -> None:
    """Two workers and the client over bad lines; one worker over a good one."""
    async with FaultyConnection(server.url) as line, FaultyConnection(server.url) as client_line:
        await asyncio.gather(workers.start("audit", 2, url=line.url, lease=1.5), workers.start("audit", lease=1.5))
        async with Publisher(client_line.url, namespace=workers.namespace) as publisher:
            load = Load(publisher, seed, agents=100)
            line.storm(seed=seed, every=every)
            client_line.storm(seed=seed + 1, every=every)
            try:
                await load.run(limit=40)  # every call ends although the storm does not
            finally:
                print(f"seed {seed}: {line.faults} and {client_line.faults} faults (workers, client); sent {load.sent}")
            client_line.heal()
            line.heal()
        await at_rest(view)
    check(view, [load])


@pytest.mark.parametrize("seed", [1, 2])
async def test_each_message_takes_effect_once_over_a_bad_line(
    server: Server, workers: Workers, view: View, seed: int
) -> None:
    await run_in_a_storm(server, workers, view, seed)


async def test_replies_that_never_come_are_noticed_by_workers_and_clients(
    server: Server, workers: Workers, view: View
) -> None:
    """All connections of a worker and of the client go deaf in the middle, and stay open.

    Others take over; and what the server keeps for the client is not given up because it cannot hear it just now.
    """
    async with FaultyConnection(server.url) as line:
        await workers.start("audit", url=line.url, lease=1.0)
        await eventually(lambda: len(view.owners()) > 48, within=5)
        await workers.start("audit", lease=1.0)
        async with Publisher(line.url, namespace=workers.namespace) as publisher:
            load = Load(publisher, seed=3, agents=60)
            run = asyncio.create_task(load.run())
            await eventually(lambda: load.sent > load.total / 3 or run.done(), within=10)
            line.lose_replies()
            await run
        await at_rest(view)
        name = view.worker_of(workers.started[0].pid)
        await eventually(lambda: view.owned_by(name), within=15)
    check(view, [load])


async def test_a_commit_whose_reply_was_lost_spoils_nothing_of_the_turn_that_runs_by_then(
    server: Server, workers: Workers, view: View
) -> None:
    async with FaultyConnection(server.url) as line:
        await workers.start("troubles", url=line.url, lease=2.0)
        async with Publisher(server.url, namespace=workers.namespace) as publisher:
            bell = f"sb:{{{view.namespace}:w:{view.worker_of(workers.started[0].pid)}}}:bell"
            for number, pause in ((1, 0.0), (2, 2.0), (3, 0.0), (4, 0.8)):
                message = File(sender="client", number=number, pause=pause)
                await publisher.publish(message, TopicId(EVENTS, "s"))
            await eventually(lambda: view.begun() == 1 and view.client.xlen(bell) == 0)  # 3 and 4 are in memory
            line.lose_replies()
            await eventually(lambda: view.state("slow", "s").get("heard") == {"client": [1, 2, 3]}, within=4)
            await eventually(lambda: view.begun() == 1)  # the turn of 4; two commits before it are not answered
            line.cut()
            await publisher.publish(File(sender="client", number=5), TopicId(EVENTS, "s"))
        await at_rest(view)
    assert view.state("slow", "s")["heard"] == {"client": [1, 2, 3, 4, 5]}
    assert view.state("tally", "slow")["heard"] == {"s": [1, 2, 3, 4, 5]}


@pytest.mark.torture
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(200, 230))
async def test_many_storms(server: Server, workers: Workers, view: View, seed: int) -> None:
    await run_in_a_storm(server, workers, view, seed, every=random.Random(seed).choice((0.03, 0.1, 0.3)))
