"""A server at its memory limit takes nothing from outside, and drains: turns that run commit (I19)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from autogen_core import MessageContext, TopicId

from stagebell import Publisher, RedisRuntime
from stagebell.errors import ServerRefused
from stagebell.runtime.redis.keys import PartitionKeys
from tests.support.agents import Ask, Counting, Doing, Note, agent, collect, host
from tests.support.servers import Kind, Server, available_kinds
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(params=available_kinds())
def small(request: pytest.FixtureRequest) -> Iterator[Server]:
    kind: Kind = request.param
    with Server(kind, args=("--maxmemory-policy", "noeviction")) as server:
        yield server


def fill(server: Server) -> None:
    used = int(server.client().info("memory")["used_memory"])
    server.client().config_set("maxmemory", used // 2)


def empty(server: Server) -> None:
    server.client().config_set("maxmemory", 0)


def leased_until(server: Server, namespace: str) -> int:
    (until,) = server.client().hmget(PartitionKeys(namespace, "busy", 0).own, "until")
    return int(until)


async def test_turns_commit_while_ingress_is_refused(small: Server, namespace: str) -> None:
    go_on, heard = asyncio.Event(), list[str]()

    async def busy(me: Doing, message: Note, ctx: MessageContext) -> None:
        await go_on.wait()
        assert await me.call("counter") > 0
        await me.publish_message(Note(text=message.text), TopicId("out", "default"))

    async with (
        RedisRuntime(small.url, namespace=namespace, lease=1.0) as runtime,
        Publisher(small.url, namespace=namespace, when_full="raise") as publisher,
    ):
        await Counting.register(runtime, "counter", Counting)
        await host(runtime, "busy", note=busy)
        await host(runtime, "out", note=collect(heard), topics=("out",))
        for number in range(20):
            await publisher.send(Note(text=str(number)), agent("busy", str(number % 5)))
        fill(small)
        with pytest.raises(ServerRefused) as refused:
            await publisher.send(Note(text="refused"), agent("busy"))
        assert refused.value.code == "OOM"
        go_on.set()
        await eventually(lambda: len(heard) == 20, within=15)
        assert (await runtime.save_state())["counter/default"] == {"count": 20}
        before = leased_until(small, namespace)
        await eventually(lambda: leased_until(small, namespace) > before, within=5)  # leases are renewed all the same
        with pytest.raises(ServerRefused):
            await publisher.send(Note(text="refused"), agent("busy"))
        empty(small)
        await publisher.send(Note(text="last"), agent("busy"))
        await eventually(lambda: heard[20:] == ["last"], within=5)


async def test_who_waits_for_room_waits_for_the_server_too(small: Server, namespace: str) -> None:
    async with (
        RedisRuntime(small.url, namespace=namespace) as runtime,
        Publisher(small.url, namespace=namespace) as patient,
        Publisher(small.url, namespace=namespace, server_patience=0.2) as hurried,
    ):
        await Counting.register(runtime, "counter", Counting)
        assert await patient.call(Ask(), agent("counter")) == 1
        fill(small)
        calls = [asyncio.create_task(patient.call(Ask(), agent("counter"))) for _ in range(5)]
        with pytest.raises(ServerRefused, match="OOM"):
            await hurried.call(Ask(), agent("counter"))
        assert not any(call.done() for call in calls)
        empty(small)
        assert await asyncio.gather(*calls) == [2, 3, 4, 5, 6]
