"""A worker stands still for longer than its lease: it changes nothing that others have taken over."""

from __future__ import annotations

import asyncio

import pytest
from autogen_core import AgentId, TopicId

from stagebell import Publisher
from tests.failure.agents import FILES, File, Measure, Measured
from tests.failure.history import Load, check
from tests.failure.processes import Worker, Workers
from tests.failure.troubles import EVENTS
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

LEASE = 0.6


async def taken_over(view: View, worker: str) -> None:
    """Wait until a worker owns nothing any more."""
    await eventually(lambda: not view.owned_by(worker), within=LEASE + 3)


async def works_again(view: View, worker: Worker, agent_type: str) -> None:
    """Wait until a worker owns partitions of a type again."""
    name = view.worker_of(worker.pid)
    assert name
    await eventually(lambda: any(f":{agent_type}:" in key for key in view.owned_by(name)), within=10)


# How long the handler waits, and when the worker is woken, in seconds from the start of the turn.
MOMENTS = {"its wait ended while it stood still": (1.0, 2.5), "its wait ends just after it woke": (2.5, 2.3)}


@pytest.mark.parametrize(("pause", "woken"), MOMENTS.values(), ids=MOMENTS.keys())
async def test_a_turn_that_was_taken_over_has_no_effect_when_its_worker_goes_on(
    server: Server, workers: Workers, view: View, pause: float, woken: float
) -> None:
    """I1: of two workers that both believe to own an agent, one has an effect."""
    [frozen] = await workers.start("troubles", lease=LEASE)
    await eventually(lambda: len(view.owners()) > 16, within=5)
    name = view.worker_of(frozen.pid)
    loop = asyncio.get_running_loop()
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Measured)
        for key in ("e1", "e2"):
            await publisher.publish(File(sender="client", number=1, pause=pause), TopicId(EVENTS, key))
        call = asyncio.create_task(publisher.call(File(sender="client", number=1, pause=pause), AgentId("slow", "c1")))
        await eventually(lambda: view.begun() == 3, within=2)
        started = loop.time()
        other = workers.spawn("troubles", lease=LEASE)
        frozen.freeze()
        await other.ready()
        await taken_over(view, name)
        await asyncio.sleep(max(started + woken - loop.time(), 0))  # the moment is what this test is about
        frozen.thaw()
        reply = await asyncio.wait_for(call, 15)
        await eventually(lambda: view.backlog() == 0, within=10)
        assert reply.pid == other.pid
        await works_again(view, frozen, "slow")
    assert [view.state("slow", key)["heard"] for key in ("e1", "e2", "c1")] == [{"client": [1]}] * 3
    assert view.state("tally", "slow")["heard"] == {"e1": [1], "e2": [1], "c1": [1]}
    assert not view.left_behind()
    assert not view.dead_letters()


async def test_messages_that_waited_in_a_frozen_worker_are_handled_once(
    server: Server, workers: Workers, view: View
) -> None:
    running = await workers.start("audit", 2, lease=LEASE)
    name = view.worker_of(running[0].pid)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        load = Load(publisher, seed=5, agents=60)
        run = asyncio.create_task(load.run())
        for part in (0.2, 0.6):
            await eventually(lambda part=part: load.sent > part * load.total or run.done(), within=20)
            running[0].freeze()
            await taken_over(view, name)
            running[0].thaw()
            await works_again(view, running[0], "analyser")
        await run
        await eventually(lambda: view.backlog() == 0, within=10)
        await eventually(lambda: not view.left_behind(), within=2)
    check(view, [load])


async def test_a_worker_that_was_idle_when_it_stood_still_works_again(
    server: Server, workers: Workers, view: View
) -> None:
    [frozen] = await workers.start("audit", lease=LEASE)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Measured)
        await publisher.call(Measure(sender="client", number=1), AgentId("analyser", "a1"), timeout=5)
        name = view.worker_of(frozen.pid)
        other = workers.spawn("audit", lease=LEASE)
        frozen.freeze()
        await other.ready()
        await taken_over(view, name)
        await publisher.call(Measure(sender="client", number=2), AgentId("analyser", "a1"), timeout=5)
        frozen.thaw()
        await works_again(view, frozen, "analyser")
        other.kill()
        await publisher.call(Measure(sender="client", number=3), AgentId("analyser", "a1"), timeout=8)
        await publisher.publish(File(sender="client", number=4), TopicId(FILES, "a1"))
        await eventually(lambda: view.backlog() == 0, within=5)
    assert view.state("analyser", "a1")["heard"] == {"client": [1, 2, 3, 4]}


async def test_a_process_bound_type_survives_that_its_process_stood_still(
    server: Server, workers: Workers, view: View
) -> None:
    [desk] = await workers.start("bound", lease=LEASE)
    await workers.start("troubles", lease=LEASE)

    async def reaches_the_desk(number: int) -> bool:
        await publisher.publish(File(sender="client", number=number), TopicId("desk", "any"))
        return number in view.state("tally", "bound").get("heard", {}).get(str(desk.pid), [])

    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        await eventually(lambda: reaches_the_desk(1), within=5)
        name = view.worker_of(desk.pid)
        desk.freeze()
        key = f"sb:{{{view.namespace}:w:{name}}}:own"
        await eventually(lambda: view.client.hget(key, "owner") != name.encode(), within=LEASE + 3)
        desk.thaw()
        await eventually(lambda: reaches_the_desk(2), within=5)
