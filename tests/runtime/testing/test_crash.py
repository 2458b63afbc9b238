"""A runtime that a test lets die: nothing more of it reaches the server, and another one ends what it began."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from autogen_core import DefaultTopicId, MessageContext, TopicId

from stagebell import LocalRuntime, Publisher, RedisRuntime
from stagebell.errors import RuntimeNotRunning
from stagebell.testing import crash
from tests.runtime.testing.bank import ACCOUNT, Account, Amounts, Balance, Deposit, amounts, now_ms
from tests.support.agents import Ask, Doing, Note, agent, collect, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

LEASE = 0.6


async def a_bank(url: str, namespace: str, account: Any = Account) -> RedisRuntime:
    runtime = RedisRuntime(url, namespace=namespace, lease=LEASE, partitions=2)
    await Account.register(runtime, "account", account)
    await runtime.start()
    return runtime


class Hanging(Account):
    """Waits in the middle of each deposit."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        reply = await super().on_message_impl(message, ctx)
        if isinstance(message, Deposit):
            self._log.append("begun")
            try:
                await asyncio.Event().wait()
            finally:
                self._log.append("interrupted")
        return reply

    async def close(self) -> None:
        self._log.append("closed")


@pytest.mark.integration
async def test_a_turn_that_was_open_is_ended_once_by_a_successor(server: Server, namespace: str) -> None:
    log: list[str] = []
    victim = await a_bank(server.url, namespace, lambda: Hanging(log))
    async with Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(Amounts)
        await publisher.publish(Deposit(amount=5), DefaultTopicId())
        await eventually(lambda: log == ["begun"], 5)
        asking = asyncio.create_task(publisher.call(Balance(), ACCOUNT, timeout=20))
        await crash(victim)
        assert log == ["begun", "interrupted"]
        heir = await a_bank(server.url, namespace)
        assert (await asyncio.wait_for(asking, 15)).amounts == [5]
        assert await amounts(heir) == [5]
        await heir.close()
    await victim.close()
    assert "closed" not in log


@pytest.mark.integration
async def test_nothing_reaches_the_server_any_more(server: Server, namespace: str) -> None:
    victim = await a_bank(server.url, namespace)
    await victim.publish_message(Deposit(amount=1), DefaultTopicId())
    assert await amounts(victim) == [1]
    client = server.client()
    leases = {key: client.hgetall(key) for key in client.scan_iter(f"sb:{{{namespace}:*}}:own")}
    await crash(victim)
    connected = [line["name"] for line in client.client_list() if "stagebell-" in line["name"]]
    beats = client.zrange(f"sb:{{{namespace}}}:workers", 0, -1, withscores=True)
    expiries = {key: client.hget(key, "until") for key in leases}
    assert beats
    assert expiries
    await eventually(lambda: all(int(until) < now_ms(client) for until in expiries.values()), LEASE + 5)
    assert client.zrange(f"sb:{{{namespace}}}:workers", 0, -1, withscores=True) == beats
    assert {key: client.hget(key, "until") for key in leases} == expiries
    assert all(client.hget(key, "owner") for key in leases)  # nothing was released
    assert not [name for name in connected if name.startswith(f"stagebell-{beats[0][0].decode()}")]
    client.close()


@pytest.mark.integration
async def test_what_is_asked_of_a_dead_runtime_ends_in_a_named_error(redis_url: str, namespace: str) -> None:
    log: list[str] = []
    victim = await a_bank(redis_url, namespace, lambda: Hanging(log))
    waiting = asyncio.create_task(victim.send_message(Deposit(amount=1), ACCOUNT))
    await eventually(lambda: log, 5)
    await crash(victim)
    for asked in (waiting, amounts(victim), victim.start(), victim.stop(), crash(victim)):
        with pytest.raises(RuntimeNotRunning, match="crashed"):
            await asyncio.wait_for(asked, 5)
    await victim.close()


@pytest.mark.integration
async def test_a_handler_may_crash_its_own_runtime(redis_url: str, namespace: str) -> None:
    victim = RedisRuntime(redis_url, namespace=namespace, lease=LEASE, partitions=2)
    after: list[str] = []

    async def die(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await agent.publish_message(Note(text="never committed"), TopicId("later", "x"))
        await crash(victim)
        after.append("went on")

    await host(victim, "mortal", note=die, topics=("now",))
    await victim.start()
    async with Publisher(redis_url, namespace=namespace) as publisher:  # the victim would not live to hear of its own
        await publisher.publish(Note(text="die"), TopicId("now", "x"))
    heir = RedisRuntime(redis_url, namespace=namespace, lease=LEASE, partitions=2)
    seen: list[str] = []
    await host(heir, "mortal", note=collect(seen), topics=("now", "later"))
    await heir.start()
    await eventually(lambda: seen == ["die"], 10)
    assert not after
    await heir.close()


@pytest.mark.runtime
@pytest.mark.parametrize("agent_is", ["new", "in memory"])
async def test_callers_of_a_local_runtime_that_dies_get_a_named_error(agent_is: str) -> None:
    entered, closed = asyncio.Event(), []
    runtime = LocalRuntime()

    async def wait(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    async def pass_on(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("waits")

    await host(runtime, "waits", wait)
    await host(runtime, "passes", pass_on)
    await host(runtime, "other", echo)
    runtime.start()
    for name in ("waits", "passes"):
        await runtime.get(agent(name), lazy=agent_is == "new")
    (await runtime.try_get_underlying_agent_instance(agent("other"), Doing)).close = closed.append
    calls = [asyncio.create_task(runtime.send_message(Ask(), agent("passes"))) for _ in range(2)]
    await asyncio.wait_for(entered.wait(), 5)
    await crash(runtime)
    for call in calls:
        with pytest.raises(RuntimeNotRunning, match="crashed"):
            await asyncio.wait_for(call, 5)
    with pytest.raises(RuntimeNotRunning, match="crashed"):
        await runtime.send_message(Ask(), agent("other"))
    with pytest.raises(RuntimeNotRunning, match="crashed"):
        await runtime.publish_message(Note(), TopicId("news", "x"))
    with pytest.raises(RuntimeNotRunning, match="crashed"):
        runtime.start()
    await runtime.close()
    assert not closed


@pytest.mark.integration
async def test_a_crash_leaves_no_complaints_of_asyncio(server: Server, namespace: str) -> None:
    """What waited for the server has its error, whether anybody awaits it or not."""
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    runtime = await a_bank(server.url, namespace)
    calls = [asyncio.ensure_future(runtime.send_message(Balance(), ACCOUNT)) for _ in range(5)]
    await asyncio.sleep(0)
    await crash(runtime)
    await asyncio.gather(*calls, return_exceptions=True)
    del calls, runtime
    gc.collect()
    await asyncio.sleep(0.01)
    gc.collect()
    assert complaints == []
