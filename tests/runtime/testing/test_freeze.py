"""A runtime that a test lets stand still, and go on as a zombie."""

from __future__ import annotations

import asyncio

import pytest
from autogen_core import DefaultTopicId, MessageContext, TopicId

from stagebell import LocalRuntime, Publisher, RedisRuntime
from stagebell.errors import RuntimeNotRunning
from stagebell.testing import crash, freeze, thaw
from tests.runtime.testing.bank import Deposit, amounts, now_ms
from tests.runtime.testing.test_crash import LEASE, a_bank
from tests.support.agents import Doing, Note, collect, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_a_turn_that_was_frozen_beyond_its_lease_takes_no_effect(
    redis_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker wakes up after another has done the work, and commits: the fence refuses it."""
    gate, entered = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def slow(agent: Doing, message: Note, ctx: MessageContext) -> None:
        entered.set()
        await gate.wait()
        await agent.publish_message(Note(text=f"{agent.id.key} by the zombie"), TopicId("done", "x"))

    async def quick(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await agent.publish_message(Note(text=f"{agent.id.key} by the heir"), TopicId("done", "x"))

    zombie = RedisRuntime(redis_url, namespace=namespace, lease=LEASE, partitions=2)
    await host(zombie, "works", note=slow, topics=("work",))
    await zombie.start()
    await zombie.publish_message(Note(), TopicId("work", "x"))
    await asyncio.wait_for(entered.wait(), 5)
    freeze(zombie)
    heir = RedisRuntime(redis_url, namespace=namespace, lease=LEASE, partitions=2)
    await host(heir, "works", note=quick, topics=("work",))
    await host(heir, "hears", note=collect(done), topics=("done",))
    await heir.start()
    await eventually(lambda: done == ["x by the heir"], 10)
    gate.set()  # the handler ends, its commit waits
    await asyncio.sleep(0)
    thaw(zombie)
    await asyncio.wait_for(zombie.publish_message(Note(), TopicId("work", "y")), 10)  # after the commit, in order
    await eventually(lambda: len(done) == 2, 10)
    assert done[0] == "x by the heir"
    assert done[1].startswith("y")  # either of them may have run this one
    await eventually(lambda: "has lost" in caplog.text, 10)
    assert "give workers more CPU, look for handlers that block and for a slow server, or set a longer" in caplog.text
    await zombie.close()
    await heir.close()


async def test_nothing_runs_and_nothing_is_renewed_while_it_is_frozen(server: Server, namespace: str) -> None:
    frozen = await a_bank(server.url, namespace)
    client = server.client()
    async with Publisher(server.url, namespace=namespace) as publisher:
        await publisher.publish(Deposit(amount=1), DefaultTopicId())
        assert await amounts(frozen) == [1]
        freeze(frozen)
        asking = asyncio.create_task(amounts(frozen))
        await publisher.publish(Deposit(amount=2), DefaultTopicId())
        owners = list(client.scan_iter(f"sb:{{{namespace}:account:*}}:own"))
        await eventually(lambda: all(int(client.hget(key, "until")) < now_ms(client) for key in owners), LEASE + 5)
        assert not asking.done()
        thaw(frozen)  # nobody took over: its leases are as good as before
        await asyncio.wait_for(asking, 10)
        await eventually(lambda: heard_both(frozen), 10)
    client.close()
    await frozen.close()


async def heard_both(runtime: RedisRuntime) -> bool:
    return await amounts(runtime) == [1, 2]


async def test_a_crash_of_a_frozen_runtime_leaves_what_it_wanted_to_send_behind(redis_url: str, namespace: str) -> None:
    frozen = await a_bank(redis_url, namespace)
    freeze(frozen)
    publishing = asyncio.create_task(frozen.publish_message(Deposit(amount=1), DefaultTopicId()))
    await asyncio.sleep(0)
    await crash(frozen)
    with pytest.raises(RuntimeNotRunning, match="crashed"):
        await asyncio.wait_for(publishing, 5)
    heir = await a_bank(redis_url, namespace)
    assert await asyncio.wait_for(amounts(heir), 10) == []
    await heir.close()


async def test_only_what_runs_can_be_frozen(redis_url: str, namespace: str) -> None:
    runtime = RedisRuntime(redis_url, namespace=namespace)
    with pytest.raises(RuntimeNotRunning, match="not started"):
        freeze(runtime)
    with pytest.raises(AttributeError):
        freeze(LocalRuntime())
