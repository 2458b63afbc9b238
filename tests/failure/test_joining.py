"""A worker joins or leaves in order while messages are on their way, and nobody notices."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from stagebell.messages.ids import partition_of
from tests.failure.agents import Count
from tests.failure.history import Load, check
from tests.failure.hopping import Hop
from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

PARTITIONS = 4


def neighbours(number: int) -> list[str]:
    """Two agents whose home is the same partition."""
    names = (f"h{i}" for i in range(1000))
    found = [name for name in names if partition_of(f"hopper/{name}", PARTITIONS) == number]
    return found[:2]


async def shared_by(view: View, agent_type: str, count: int) -> bool:
    owners = {owner for key, owner in view.owners().items() if f":{agent_type}:" in key}
    return len(owners - {""}) == count


async def test_calls_within_a_partition_go_on_while_it_changes_hands(
    server: Server, workers: Workers, view: View
) -> None:
    """Each turn of the first agent waits for a turn of its neighbour, and that for a turn of the first."""
    await workers.start("troubles", partitions=PARTITIONS, lease=1.0)
    joined = asyncio.Event()
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Count)

        async def keep_calling(partition: int) -> None:
            first, second = neighbours(partition)
            while not joined.is_set():
                hop = Hop(to=[second, first], pause=0.05)
                answer = await publisher.call(hop, AgentId("hopper", first), timeout=8)
                assert answer.count == 3

        calling = asyncio.gather(*(keep_calling(number) for number in range(PARTITIONS)))
        await eventually(lambda: len(view.owners()) > PARTITIONS, within=5)
        await workers.start("troubles", partitions=PARTITIONS, lease=1.0)
        with contextlib.suppress(AssertionError):  # sharing takes its time while there is so much to do
            await eventually(lambda: shared_by(view, "hopper", 2), within=3)
        joined.set()
        await calling
    await eventually(lambda: shared_by(view, "hopper", 2), within=8)


async def test_workers_that_come_and_go_in_order_lose_nothing(server: Server, workers: Workers, view: View) -> None:
    """I12: a change of owner drops no accepted message."""
    running = await workers.start("audit", 2, lease=1.0)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        load = Load(publisher, seed=21, agents=100)
        run = asyncio.create_task(load.run())
        for part in (0.2, 0.5):
            await eventually(lambda part=part: load.sent >= part * load.total or run.done(), within=20)
            running += await workers.start("audit", lease=1.0)
            assert await running.pop(0).stop() == 0
        await run
        await eventually(lambda: view.backlog() == 0, within=10)
        await eventually(lambda: not view.left_behind(), within=2)
    check(view, [load])
    assert not view.against_the_list()
