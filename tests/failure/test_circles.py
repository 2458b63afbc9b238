"""Circles of calls through several worker processes: found within a second, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import time

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from stagebell.errors import CallCycleError
from tests.failure.agents import Count
from tests.failure.hopping import Hop
from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

PAUSE = 0.6  # seconds in which all first turns start


@pytest.mark.parametrize("names", [("first", "second"), ("first", "second", "third")], ids=len)
async def test_a_circle_through_workers_ends_in_an_error_that_names_it(
    server: Server, workers: Workers, view: View, names: tuple[str, ...]
) -> None:
    await asyncio.gather(*(workers.spawn(name, partitions=2).ready() for name in names))
    agents = [AgentId(name, "x") for name in names]
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Count)
        await asyncio.gather(*(publisher.call(Hop(), agent, timeout=5) for agent in agents))
        begin = time.monotonic()
        calls = (
            publisher.call(Hop(to=[str(following)], pause=PAUSE), agent, timeout=10)
            for agent, following in zip(agents, agents[1:] + agents[:1], strict=True)
        )
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert time.monotonic() - begin < PAUSE + 3  # a second where the machine is not busy with others
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert len(errors) == 1
        assert isinstance(errors[0], CallCycleError)
        cycle = errors[0].cycle
        assert cycle[0] == cycle[-1]
        assert sorted(cycle[1:]) == sorted(map(str, agents))
        after = await asyncio.gather(*(publisher.call(Hop(), agent, timeout=5) for agent in agents))
        assert [answer.count for answer in after] == [1] * len(names)
    await eventually(lambda: view.backlog() == 0 and not view.left_behind())
    assert not view.dead_letters()
    assert not view.against_the_list()


async def test_a_circle_that_outlives_a_worker_is_found_when_its_agents_are_back(
    server: Server, workers: Workers, view: View
) -> None:
    """One of two agents that wait for each other loses its worker before anybody could ask."""
    first, second = AgentId("first", "x"), AgentId("second", "x")
    alive = await workers.spawn("first", partitions=1, lease=1.0).ready()
    doomed = await workers.spawn("second", partitions=1, lease=1.0).ready()
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Count)
        await asyncio.gather(*(publisher.call(Hop(), agent, timeout=5) for agent in (first, second)))
        calls = asyncio.gather(
            publisher.call(Hop(to=[str(second)], pause=PAUSE), first, timeout=15),
            publisher.call(Hop(to=[str(first)], pause=PAUSE), second, timeout=15),
            return_exceptions=True,
        )
        await eventually(lambda: view.begun() == 2)
        doomed.kill()
        await workers.start("second", partitions=1, lease=1.0)
        outcomes = await calls
    assert [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)] == [CallCycleError]
    await eventually(lambda: view.backlog() == 0 and not view.left_behind())
    assert alive.alive
