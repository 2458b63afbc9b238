"""The life of a runtime over a server: started at once, stopped from inside, with servers that refuse to write."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId

from stagebell import Publisher, RedisRuntime
from stagebell.errors import OutcomeUnknown, RuntimeNotRunning, ServerRefused, ServerUnavailable
from stagebell.runtime.redis.keys import NamespaceKeys, PartitionKeys
from stagebell.runtime.redis.lua_files import SCRIPTS
from stagebell.runtime.redis.rights import CLIENT_COMMANDS, WORKER_COMMANDS
from tests.support.agents import Ask, Counting, Doing, Note, agent, collect, echo, host
from tests.support.servers import Server, available_kinds, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_of_two_starts_at_once_one_is_refused(server: Server, namespace: str) -> None:
    runtime = RedisRuntime(server.url, namespace=namespace)
    await host(runtime, "echo", echo)
    outcomes = await asyncio.gather(runtime.start(), runtime.start(), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes if outcome is not None] == ["the runtime is already started"]
    assert await runtime.send_message(Ask(text="one"), agent("echo")) == "one"
    await asyncio.wait_for(runtime.close(), 5)


async def test_close_waits_for_a_start_that_is_under_way(server: Server, namespace: str) -> None:
    runtime = RedisRuntime(server.url, namespace=namespace)
    await host(runtime, "echo", echo)
    starting = asyncio.create_task(runtime.start())
    await asyncio.sleep(0)
    await asyncio.wait_for(runtime.close(), 5)
    assert starting.done()
    with pytest.raises(RuntimeNotRunning):
        await runtime.send_message(Ask(), agent("echo"))


@pytest.mark.parametrize("how", ["stop", "close"])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_turn_that_stops_its_runtime_is_committed(
    server: Server, namespace: str, how: str, waits: bool
) -> None:
    class Stopping(Counting):
        async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
            self.count += 1
            await getattr(self.runtime, how)()
            if waits:
                await asyncio.sleep(0.02)
            return self.count

    runtime = RedisRuntime(server.url, namespace=namespace, partitions=1)
    await Stopping.register(runtime, "stopper", Stopping)
    await runtime.start()
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("stopper")), 5) == 1
    await asyncio.wait_for(runtime.close(), 5)
    keys = PartitionKeys(namespace, "stopper", 0)
    client: Any = server.client()
    assert client.xlen(keys.inbox) == 0
    assert client.hget(keys.state("default"), "v") == b"1"
    client.close()


async def test_a_runtime_stopped_from_inside_can_be_started_again(server: Server, namespace: str) -> None:
    async def stop(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        if message.text == "stop":
            await agent.runtime.stop()
        return message.text

    runtime = RedisRuntime(server.url, namespace=namespace)
    await host(runtime, "stopper", stop)
    await runtime.start()
    assert await runtime.send_message(Ask(text="stop"), agent("stopper")) == "stop"
    await asyncio.wait_for(runtime.start(), 5)
    assert await asyncio.wait_for(runtime.send_message(Ask(text="on"), agent("stopper")), 5) == "on"
    await runtime.close()


def test_the_probe_can_try_every_command() -> None:
    body = SCRIPTS["probe"].text
    assert [name for name in WORKER_COMMANDS if not re.search(rf"\b{name} = {{", body)] == []


@pytest.fixture(params=available_kinds())
def private(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose settings the test may change."""
    with Server(request.param) as server:
        yield server


async def refuse_writes(private: Server) -> None:
    client: Any = private.client()
    client.config_set("min-replicas-to-write", 1)
    client.close()


async def allow_writes(private: Server) -> None:
    client: Any = private.client()
    client.config_set("min-replicas-to-write", 0)
    client.close()


async def test_a_start_at_a_server_that_cannot_write_ends_in_an_error(private: Server, namespace: str) -> None:
    await refuse_writes(private)
    with pytest.raises(ServerUnavailable, match="NOREPLICAS"):
        await asyncio.wait_for(RedisRuntime(private.url, namespace=namespace).start(), 6)
    with pytest.raises(ServerUnavailable, match="NOREPLICAS"):
        await asyncio.wait_for(Publisher(private.url, namespace=namespace).open(), 6)


async def test_a_start_at_a_replica_ends_in_an_error(private: Server, namespace: str) -> None:
    client: Any = private.client()
    client.replicaof("127.0.0.1", free_port())  # its master need not be there
    with pytest.raises(ServerUnavailable, match=r"READONLY|LOADING|MASTERDOWN"):
        await asyncio.wait_for(RedisRuntime(private.url, namespace=namespace).start(), 6)
    client.close()


async def test_a_server_that_stops_writing_is_asked_rarely_and_given_up(private: Server, namespace: str) -> None:
    async with Publisher(private.url, namespace=namespace, server_patience=0.5) as publisher:
        runtime = RedisRuntime(private.url, namespace=namespace)
        await host(runtime, "echo", echo)
        await runtime.start()
        publisher.register(Ask)
        assert await publisher.call(Ask(text="a"), agent("echo")) == "a"
        await refuse_writes(private)
        client: Any = private.client()
        before = client.info("stats")["total_connections_received"]
        with pytest.raises((ServerUnavailable, OutcomeUnknown)):
            await asyncio.wait_for(publisher.call(Ask(text="b"), agent("echo")), 5)
        assert client.info("stats")["total_connections_received"] - before < 60
        await allow_writes(private)

        async def answered() -> bool:
            try:
                return bool(await publisher.call(Ask(text="c"), agent("echo")) == "c")
            except (ServerUnavailable, OutcomeUnknown):  # the pause until the next attempt outlasts the patience
                return False

        assert await eventually(answered, 8.0)
        await runtime.close()
        client.close()


async def test_a_full_server_does_not_take_its_workers_for_dead(private: Server, namespace: str) -> None:
    runtime = RedisRuntime(private.url, namespace=namespace, lease=0.6)
    await host(runtime, "echo", echo)
    await runtime.start()
    client: Any = private.client()
    workers = NamespaceKeys(namespace).workers
    client.config_set("maxmemory", "1mb")
    (name, before), *_ = client.zrange(workers, 0, -1, withscores=True)
    await eventually(lambda: client.zscore(workers, name) > before, 3.0)
    client.config_set("maxmemory", 0)
    await runtime.close()
    client.close()


async def test_a_user_who_may_not_use_a_command_is_told_which(private: Server, namespace: str) -> None:
    client: Any = private.client()
    client.execute_command("ACL", "SETUSER", "some", "on", ">pw", "~*", "+@all", "-xdel", "-hkeys")
    url = private.url.replace("redis://", "redis://some:pw@")
    with pytest.raises(ServerRefused, match=r"HKEYS, XDEL.*\+hkeys \+xdel") as raised:
        await RedisRuntime(url, namespace=namespace).start()
    assert raised.value.code == "NOPERM"
    client.execute_command("ACL", "SETUSER", "some", "+xdel")
    async with Publisher(url, namespace=namespace):
        pass
    assert client.keys("*probe") == []
    client.close()


async def test_many_types_and_subscriptions_are_announced_in_one_step(server: Server, namespace: str) -> None:
    runtime = RedisRuntime(server.url, namespace=namespace, partitions=1)
    for number in range(40):
        await host(runtime, f"t{number}", echo, topics=(f"topic{number}",))
    await runtime.start()
    client: Any = server.client()
    registry = client.hgetall(NamespaceKeys(namespace).reg)
    assert len([name for name in registry if name[:2] in (b"t:", b"s:")]) >= 80
    assert int(registry[b"v"]) < 10
    await runtime.close()
    client.close()


async def test_what_a_flush_took_is_announced_again(private: Server, namespace: str) -> None:
    seen: list[str] = []
    runtime = RedisRuntime(private.url, namespace=namespace, lease=0.6)
    await host(runtime, "echo", echo, collect(seen), topics=("news",))
    await runtime.start()
    client: Any = private.client()
    reg = NamespaceKeys(namespace).reg
    await eventually(lambda: runtime._node._highest_version > 0)
    before = set(client.hkeys(reg))
    client.flushall()
    await eventually(lambda: set(client.hkeys(reg)) >= before, 5.0)
    assert await asyncio.wait_for(runtime.send_message(Ask(text="on"), agent("echo")), 5) == "on"
    await runtime.publish_message(Note(text="news"), TopicId("news", "d"))
    await eventually(lambda: seen)
    await runtime.close()
    client.close()


def test_the_needed_commands_are_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")
    section = text.split("## The server")[1].split("\n## ")[0]
    assert " ".join(WORKER_COMMANDS).lower() in " ".join(section.split())
    assert " ".join(CLIENT_COMMANDS).lower() in " ".join(section.split())
