"""A line that a test makes bad: what runtimes over it go through, and that each message takes effect once."""

from __future__ import annotations

import asyncio
import time

import pytest
from autogen_core import DefaultTopicId

from stagebell import Publisher, RedisRuntime
from stagebell.testing import FaultyConnection
from tests.runtime.testing.bank import Account, Deposit, amounts
from tests.support.servers import Kind, Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def make_bank(url: str, namespace: str) -> RedisRuntime:
    runtime = RedisRuntime(url, namespace=namespace, lease=1.0, partitions=2)
    await Account.register(runtime, "account", Account)
    await runtime.start()
    return runtime


async def test_each_message_takes_effect_once_in_a_storm(redis_url: str, namespace: str) -> None:
    async with FaultyConnection(redis_url) as line:
        runtime = await make_bank(line.url, namespace)
        line.storm(seed=3, every=0.05)
        async with Publisher(line.url, namespace=namespace) as publisher:
            for number in range(60):
                await publisher.publish(Deposit(amount=number), DefaultTopicId())
                await asyncio.sleep(0.01)
        assert line.faults > 5
        line.heal()
        await eventually(lambda: settled(runtime, 60), within=20)
        assert await amounts(runtime) == list(range(60))
        await runtime.close()


async def settled(runtime: RedisRuntime, count: int) -> bool:
    return len(await amounts(runtime)) >= count


async def test_a_reply_that_is_lost_does_not_make_an_effect_twice(redis_url: str, namespace: str) -> None:
    async with FaultyConnection(redis_url) as line:
        runtime = await make_bank(redis_url, namespace)
        async with Publisher(line.url, namespace=namespace) as publisher:
            await publisher.publish(Deposit(amount=1), DefaultTopicId())
            line.lose_replies()
            publishing = asyncio.create_task(publisher.publish(Deposit(amount=2), DefaultTopicId()))
            await eventually(lambda: settled(runtime, 2), within=5)  # the server has done it
            assert not publishing.done()
            line.cut()
            await asyncio.wait_for(publishing, 10)
        assert await amounts(runtime) == [1, 2]
        await runtime.close()


async def test_a_line_that_is_cut_is_opened_again(redis_url: str, namespace: str) -> None:
    async with FaultyConnection(redis_url) as line:
        runtime = await make_bank(line.url, namespace)
        line.cut()
        await runtime.publish_message(Deposit(amount=1), DefaultTopicId())
        assert await asyncio.wait_for(amounts(runtime), 10) == [1]
        await runtime.close()


async def test_replies_come_late_until_the_line_is_healed(redis_url: str, namespace: str) -> None:
    async with FaultyConnection(redis_url) as line:
        async with Publisher(line.url, namespace=namespace) as publisher:
            line.delay(0.3)
            start = time.monotonic()
            await publisher.publish(Deposit(amount=1), DefaultTopicId())
            assert time.monotonic() - start >= 0.3
            line.heal()
            await publisher.publish(Deposit(amount=1), DefaultTopicId())


async def test_healing_ends_connections_that_have_lost_replies(redis_url: str, namespace: str) -> None:
    async with FaultyConnection(redis_url) as line:
        async with Publisher(line.url, namespace=namespace) as publisher:
            line.lose_replies()
            publishing = asyncio.create_task(publisher.publish(Deposit(amount=1), DefaultTopicId()))
            line.heal()
            await asyncio.wait_for(publishing, 4)  # less than the patience for a reply
            assert line.connections


async def test_a_unix_socket_is_reached_over_a_unix_socket(server: Server, namespace: str) -> None:
    kind: Kind = server.kind
    with Server(kind, unix=True) as own:
        async with FaultyConnection(own.url + "?db=1") as line:
            assert line.url.startswith("unix://")
            assert line.url.endswith("?db=1")
            runtime = await make_bank(line.url, namespace)
            line.cut()
            await runtime.publish_message(Deposit(amount=1), DefaultTopicId())
            assert await asyncio.wait_for(amounts(runtime), 10) == [1]
            await runtime.close()
            client = own.client(db=1)
            assert client.dbsize()
            client.close()


def test_a_url_keeps_what_is_not_its_place() -> None:
    with pytest.raises(ValueError, match="redis://"):
        FaultyConnection("http://localhost")
    with pytest.raises(RuntimeError, match="async with"):
        FaultyConnection("redis://localhost").url  # noqa: B018
