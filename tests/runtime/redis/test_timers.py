"""Timers over a server: kept while nobody is there, taken over, and ended with what is bound to a process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import TopicId

from stagebell import Publisher, RedisRuntime
from stagebell.errors import Undeliverable
from stagebell.runtime.redis.keys import EventsKeys, PartitionKeys, ProcessKeys
from tests.support.agents import Ask, Bound, Doing, Note, agent, collect, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

NEWS = TopicId("news", "default")


def runtime_for(server: Server, namespace: str, **options: Any) -> RedisRuntime:
    return RedisRuntime(server.url, namespace=namespace, partitions=1, lease=0.6, **options)


async def test_timers_wait_while_no_worker_is_there(server: Server, namespace: str) -> None:
    heard: list[str] = []
    first = runtime_for(server, namespace)
    await host(first, "doing", echo, collect(heard), topics=("news",))
    await first.start()
    async with Publisher(server.url, namespace=namespace) as publisher:
        await first.close()
        await publisher.schedule(Note(text="agent"), agent("doing"), delay=0.05)
        await publisher.schedule(Note(text="topic"), NEWS, delay=0.05)
        await publisher.schedule(Note(text="again"), agent("doing"), every=0.05)
        gone = await publisher.schedule(Note(text="gone"), agent("doing"), delay=0.05)
        assert await publisher.cancel_timer(gone.id)
    await asyncio.sleep(0.2)
    second = runtime_for(server, namespace)
    await host(second, "doing", echo, collect(heard), topics=("news",))
    async with second:
        await eventually(lambda: {"agent", "topic", "again"} <= set(heard), 5)
        await eventually(lambda: heard.count("again") > 2, 5)
    assert [heard.count(text) for text in ("agent", "topic", "gone")] == [1, 1, 0]


async def test_a_late_reminder_comes_once_for_all_that_was_missed(server: Server, namespace: str) -> None:
    ids: list[int] = []

    async def note(agent: Doing, message: Note, ctx: Any) -> None:
        ids.append(int(ctx.message_id.split(".")[1]))

    runtime = runtime_for(server, namespace)
    await host(runtime, "doing", echo, note)
    await runtime.start()
    await runtime.stop()
    async with Publisher(server.url, namespace=namespace) as publisher:
        timer = await publisher.schedule(Note(), agent("doing"), every=0.2)
    first = round(timer.due.timestamp() * 1000)
    await asyncio.sleep(0.5)  # two are missed
    await runtime.start()
    await eventually(lambda: len(ids) >= 2, 5)
    await runtime.close()
    assert ids[0] == first
    assert ids[1] >= first + 400
    assert all((id - first) % 200 == 0 for id in ids)


async def test_a_new_earlier_timer_is_not_held_up_by_a_later_one(server: Server, namespace: str) -> None:
    heard: list[str] = []
    runtime = runtime_for(server, namespace)
    await host(runtime, "doing", echo, collect(heard))
    async with runtime:
        await runtime.schedule(Note(text="late"), agent("doing"), delay=3600)
        for number in range(5):
            await runtime.schedule(Note(text=str(number)), agent("doing"), delay=0.02 * (5 - number))
        await eventually(lambda: len(heard) == 5, 0.9)
    assert heard == ["4", "3", "2", "1", "0"]


async def test_many_timers_at_one_time_all_come(server: Server, namespace: str) -> None:
    heard: list[str] = []
    runtime = runtime_for(server, namespace)
    await host(runtime, "doing", echo, collect(heard))
    async with runtime:
        timers = [runtime.schedule(Note(text=str(n)), agent("doing", str(n % 7)), delay=0.2) for n in range(250)]
        await asyncio.gather(*timers)
        await eventually(lambda: len(heard) >= 250, 10)
    assert sorted(map(int, heard)) == list(range(250))


async def test_the_timers_of_an_agent_bound_to_its_process_end_with_that(server: Server, namespace: str) -> None:
    heard: list[str] = []
    runtime = runtime_for(server, namespace)
    await host(runtime, "bound", echo, collect(heard), cls=Bound)
    other = runtime_for(server, namespace)
    await host(other, "unused", echo)
    client: Any = server.client()
    async with other:
        async with runtime:
            keys = ProcessKeys(namespace, runtime._node.client.name)
            await other.schedule(Note(text="heard"), agent("bound"), delay=0.05)
            await eventually(lambda: heard == ["heard"], 5)
            await other.schedule(Note(), agent("bound"), delay=3600)
            assert client.exists(keys.due, keys.timed) == 2
        assert client.exists(keys.due, keys.timed) == 0
    client.close()


async def test_a_timer_for_a_type_that_nobody_knows_is_refused(server: Server, namespace: str) -> None:
    async with Publisher(server.url, namespace=namespace, undeliverable_after=0.2) as publisher:
        with pytest.raises(Undeliverable):
            await publisher.schedule(Note(), agent("nobody"), delay=1.0)


async def test_a_publish_that_is_due_finds_the_subscribers_of_its_moment(server: Server, namespace: str) -> None:
    heard: list[str] = []
    runtime = runtime_for(server, namespace)
    await host(runtime, "doing", echo, collect(heard))
    async with runtime, Publisher(server.url, namespace=namespace) as publisher:
        await publisher.schedule(Note(text="nobody"), NEWS, delay=0.0)
        client: Any = server.client()
        events = EventsKeys(namespace)
        await eventually(lambda: not client.exists(events.due) and not client.xlen(events.inbox), 5)
        client.close()
        assert heard == []


@pytest.mark.parametrize("kind", ["partition", "events"])
async def test_what_a_foreign_hand_wrote_goes_to_the_dead_letters(server: Server, namespace: str, kind: str) -> None:
    heard: list[str] = []
    runtime = runtime_for(server, namespace)
    await host(runtime, "doing", echo, collect(heard), topics=("news",))
    async with runtime:
        keys = PartitionKeys(namespace, "doing", 0) if kind == "partition" else EventsKeys(namespace)
        client: Any = server.client()
        client.zadd(keys.due, {"odd": 1, "without": 2, b"\xff": 3})
        client.hset(keys.timed, "odd", "n|0|{no envelope")
        await runtime.schedule(Note(text="good"), agent("doing") if kind == "partition" else NEWS, delay=0.0)
        await eventually(lambda: heard == ["good"], 5)
        await eventually(lambda: client.xlen(keys.dlq) >= 2 and client.xlen(keys.inbox) == 0, 5)
        client.close()


async def test_keys_of_a_wrong_type_hold_nobody_else_up(server: Server, namespace: str) -> None:
    heard: list[str] = []
    runtime = runtime_for(server, namespace)
    await host(runtime, "spoilt", echo, collect(heard))
    await host(runtime, "doing", echo, collect(heard))
    async with runtime:
        client: Any = server.client()
        client.set(PartitionKeys(namespace, "spoilt", 0).due, "wrong")
        await runtime.schedule(Note(text="good"), agent("doing"), delay=1.2)  # after a look at all of them
        await eventually(lambda: heard == ["good"], 5)
        assert await runtime.send_message(Ask(text="still"), agent("spoilt")) == "still"
        client.close()
