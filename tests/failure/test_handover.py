"""A worker is told to stop: others have its partitions at once, and what it has begun it ends."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from autogen_core import AgentId, TopicId

from stagebell import Publisher
from stagebell.messages.ids import partition_of
from tests.failure.agents import Count, File, Measured
from tests.failure.history import Load, check
from tests.failure.hopping import Hop
from tests.failure.processes import Worker, Workers
from tests.failure.troubles import EVENTS
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

SHORT_LEASE = 1.0  # where a worker is to be taken for dead; elsewhere none should be, on a busy machine
GRACE = 12.0
PARTITIONS = 2
OPTIONS = {"stop_grace": GRACE, "partitions": PARTITIONS}
AT_ONCE = 1.0  # seconds; far less than a lease and the time that turns here take


@pytest.fixture
async def publisher(server: Server, namespace: str) -> AsyncIterator[Publisher]:
    """A client that knows the replies of these tests."""
    async with Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(Measured)
        publisher.register(Count)
        yield publisher


async def name_of(view: View, worker: Worker) -> str:
    """Its name, once its first heartbeat has told it."""
    return str(await eventually(lambda: view.worker_of(worker.pid), within=5))


async def two_workers(workers: Workers, view: View, **options: float) -> tuple[Worker, Worker, str]:
    """Two workers that share everything, and the name of the first."""
    first, second = await workers.start("troubles", 2, **OPTIONS, **options)
    names = [await name_of(view, worker) for worker in (first, second)]

    def shared() -> bool:
        owners = Counter((key.split(":")[2], owner) for key, owner in view.owners().items() if ":events:" not in key)
        return owners == {(kind, name): 1 for kind in ("hopper", "troubled", "slow", "tally") for name in names}

    await eventually(shared, within=20)
    return first, second, names[0]


def agents_at(view: View, worker: str, kind: str) -> list[str]:
    """Keys of agents of one partition that a worker owns."""
    numbers = [int(key.rpartition("}")[0].rpartition(":")[2]) for key in view.owned_by(worker) if f":{kind}:" in key]
    return agents_in(kind, numbers[0])


def agents_in(kind: str, number: int) -> list[str]:
    """Keys of agents of one partition."""
    names = (f"k{i}" for i in range(2000))
    return [name for name in names if partition_of(f"{kind}/{name}", PARTITIONS) == number][:3]


async def handed_over(view: View, worker: Worker, name: str) -> float:
    """SIGTERM; returns the seconds until each partition of the worker has had another owner."""
    left = view.owned_by(name)
    told = worker.terminate()
    while left:
        left -= {key for key, owner in view.owners().items() if owner not in ("", name)}
        assert time.monotonic() - told < 20, f"nobody has taken {sorted(left)[:5]}"
        await asyncio.sleep(0.01)
    return time.monotonic() - told


async def nothing_is_left(view: View) -> None:
    await eventually(lambda: view.backlog() == 0, within=5)
    await eventually(lambda: not view.left_behind(), within=5)
    assert not view.dead_letters()
    assert not view.against_the_list()


async def test_a_long_turn_ends_where_it_began_and_all_the_rest_goes_on_elsewhere(
    workers: Workers, view: View, publisher: Publisher
) -> None:
    """I6, I12, I18: hand-over within a second, no turn aborted, no two turns of one agent at once, nothing dropped."""
    old, new, name = await two_workers(workers, view)
    busy, neighbour, _ = agents_at(view, name, "slow")
    call = asyncio.create_task(publisher.call(File(sender="client", number=1, pause=3.0), AgentId("slow", busy)))
    await eventually(lambda: view.begun() == 1, within=5)
    await publisher.publish(File(sender="client", number=2, pause=0.1), TopicId(EVENTS, busy))
    took = await handed_over(view, old, name)
    print(f"all partitions have another owner after {took * 1000:.0f} ms")
    assert took < AT_ONCE
    await publisher.publish(File(sender="client", number=3), TopicId(EVENTS, busy))
    other = await publisher.call(File(sender="client", number=1), AgentId("slow", neighbour), timeout=2)
    assert other.pid == new.pid
    assert not call.done()
    assert view.state("slow", busy) == {}
    reply = await asyncio.wait_for(call, 10)
    assert reply.pid == old.pid
    freed = time.monotonic()
    await eventually(lambda: view.state("slow", busy)["heard"] == {"client": [1, 2, 3]}, within=5)
    print(f"what waited for the agent was done {(time.monotonic() - freed) * 1000:.0f} ms after its turn")
    assert await old.ended() == 0
    await nothing_is_left(view)
    assert view.state("tally", "slow")["heard"] == {busy: [1, 2, 3], neighbour: [1]}


async def test_a_turn_gets_its_replies_and_is_called_back_while_its_worker_stops(
    workers: Workers, view: View, publisher: Publisher
) -> None:
    """I6, I18: replies, and calls that descend from the turn, still reach it; it ends where it began."""
    old, new, name = await two_workers(workers, view)
    first, second, _ = agents_at(view, name, "hopper")
    hop = Hop(to=[second, first, second], pause=0.5)
    call = asyncio.create_task(publisher.call(hop, AgentId("hopper", first)))
    await eventually(lambda: view.begun() == 1, within=5)
    await handed_over(view, old, name)
    answer = await asyncio.wait_for(call, 10)
    # The first agent stays with the old worker, for its turn and what comes back into it; the second never was busy.
    assert answer.pids == [old.pid, new.pid, old.pid, new.pid]
    assert [view.state("hopper", key)["sent"] for key in (first, second)] == [{"anybody": 2}] * 2
    assert await old.ended() == 0
    await nothing_is_left(view)


async def test_a_turn_whose_worker_is_killed_while_it_stops_runs_again_once(
    workers: Workers, view: View, publisher: Publisher
) -> None:
    """I6, I12: the hold of a worker that has died is broken, and its message is not lost."""
    old, new, name = await two_workers(workers, view, lease=SHORT_LEASE)
    busy, _, _ = agents_at(view, name, "slow")
    call = asyncio.create_task(publisher.call(File(sender="client", number=1, pause=2.0), AgentId("slow", busy)))
    await eventually(lambda: view.begun() == 1, within=5)
    await publisher.publish(File(sender="client", number=2), TopicId(EVENTS, busy))
    await handed_over(view, old, name)
    old.kill()
    assert (await asyncio.wait_for(call, 10)).pid == new.pid
    await nothing_is_left(view)
    assert view.state("slow", busy)["heard"] == {"client": [1, 2]}
    assert view.state("tally", "slow")["heard"] == {busy: [1, 2]}


async def test_a_turn_whose_hold_was_broken_has_no_effect(workers: Workers, view: View, publisher: Publisher) -> None:
    """I1, I6: a worker that stood still while it stopped finds its turn taken over; its commit is refused."""
    old, new, name = await two_workers(workers, view, lease=SHORT_LEASE)
    busy, _, _ = agents_at(view, name, "slow")
    call = asyncio.create_task(publisher.call(File(sender="client", number=1, pause=2.0), AgentId("slow", busy)))
    await eventually(lambda: view.begun() == 1, within=5)
    await handed_over(view, old, name)
    old.freeze()
    assert (await asyncio.wait_for(call, 10)).pid == new.pid
    old.thaw()
    assert await old.ended() == 0
    await nothing_is_left(view)
    assert view.state("slow", busy)["heard"] == {"client": [1]}
    assert view.state("tally", "slow")["heard"] == {busy: [1]}


async def test_a_worker_that_joins_gets_its_share_although_turns_are_open(
    workers: Workers, view: View, publisher: Publisher
) -> None:
    """I6, I18: sharing waits for no turn and aborts none; what waits for a busy agent goes to its new worker."""
    [old] = await workers.start("troubles", **OPTIONS)
    name = await name_of(view, old)
    await eventually(lambda: len(view.owned_by(name)) == 4 * PARTITIONS + 1, within=5)
    keys = [agents_in("slow", number)[0] for number in range(PARTITIONS)]
    calls = [
        asyncio.create_task(publisher.call(File(sender="client", number=1, pause=6.0), AgentId("slow", key)))
        for key in keys
    ]
    await eventually(lambda: view.begun() == PARTITIONS, within=5)
    [new] = await workers.start("troubles", **OPTIONS)
    taker = await name_of(view, new)
    await eventually(lambda: len([key for key in view.owned_by(taker) if ":slow:" in key]) == 1, within=5)
    assert not any(call.done() for call in calls)
    again = [publisher.call(File(sender="client", number=2), AgentId("slow", key), timeout=10) for key in keys]
    pids = {reply.pid for reply in await asyncio.gather(*again)}
    assert pids == {old.pid, new.pid}
    assert {reply.pid for reply in await asyncio.gather(*calls)} == {old.pid}
    await nothing_is_left(view)
    assert [view.state("slow", key)["heard"] for key in keys] == [{"client": [1, 2]}] * PARTITIONS


async def test_all_workers_are_restarted_one_after_the_other_and_nobody_notices(
    server: Server, workers: Workers, view: View
) -> None:
    """I3, I6, I7, I12, I18: nothing lost, nothing twice, all in order, every call answered, no error seen."""
    running = await workers.start("audit", 3, partitions=8)
    times: list[float] = []
    loads: list[Load] = []
    restarted = asyncio.Event()
    async with Publisher(server.url, namespace=workers.namespace) as publisher:

        async def keep_sending() -> None:
            while not restarted.is_set():
                loads.append(Load(publisher, seed=len(loads), agents=40, each=5, name=f"client-{len(loads)}"))
                await loads[-1].run()

        sending = asyncio.create_task(keep_sending())
        for _ in range(len(running)):
            times.append(await replace_first(workers, view, running))
        restarted.set()
        await sending
        await nothing_is_left(view)
    sent = sum(load.total for load in loads)
    print(f"{sent} messages; others had everything after {[f'{seconds * 1000:.0f}' for seconds in times]} ms")
    check(view, loads)
    assert max(times) < AT_ONCE


async def replace_first(workers: Workers, view: View, running: list[Worker]) -> float:
    """Start a worker, and stop the one that has been there for the longest; returns how long the hand-over took."""
    name = await name_of(view, running[0])
    [new] = await workers.start("audit", partitions=8)
    running.append(new)
    joined = await name_of(view, new)
    await eventually(lambda: view.owned_by(joined), within=10)
    took = await handed_over(view, running[0], name)
    assert await running.pop(0).ended() == 0
    return took
