"""A partition that has more messages than it may hold in memory: nothing waits for ever, and nothing for no reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext

from stagebell import DeferredReply, Publisher, RedisRuntime, defer_reply
from stagebell.runtime.redis.keys import PartitionKeys
from tests.support.agents import Ask, Doing, Note, agent, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def backlog(server: Server, namespace: str, agent_type: str) -> int:
    return int(server.client().xlen(PartitionKeys(namespace, agent_type, 0).inbox))


async def test_a_call_that_comes_back_is_let_in_though_it_lies_beyond_the_credit(
    server: Server, namespace: str
) -> None:
    go_on = asyncio.Event()

    async def a(me: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "first":
            await go_on.wait()
            return await me.call("b")
        return message.text

    async def b(me: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await me.call("a", "back")

    async with (
        RedisRuntime(server.url, namespace=namespace, partitions=1) as runtime,
        Publisher(server.url, namespace=namespace) as publisher,
    ):
        await host(runtime, "a", a)
        await host(runtime, "b", b)
        first = asyncio.create_task(publisher.call(Ask(text="first"), agent("a")))
        await eventually(lambda: backlog(server, namespace, "a") == 1)
        others = [asyncio.create_task(publisher.call(Ask(text="other"), agent("a"))) for _ in range(300)]
        await eventually(lambda: backlog(server, namespace, "a") == 301, within=10)
        go_on.set()
        async with asyncio.timeout(20):
            assert await first == "back"
            assert await asyncio.gather(*others) == ["other"] * 300


async def test_partitions_whose_credit_is_used_up_do_not_wait_for_each_other(server: Server, namespace: str) -> None:
    """Everything in memory of one waits for an agent that calls into the other, and the other way round."""
    go_on = asyncio.Event()

    async def cross(me: Doing, message: Ask, ctx: MessageContext) -> Any:
        if not message.text:
            return "leaf"
        await go_on.wait()
        return await me.call(AgentId(message.text, "leaf"))

    async with (
        RedisRuntime(server.url, namespace=namespace, partitions=1, read_credit=3) as runtime,
        Publisher(server.url, namespace=namespace) as publisher,
    ):
        calls: list[asyncio.Task[Any]] = []
        for name, other in (("p", "q"), ("q", "p")):
            await host(runtime, name, cross)
            calls += [asyncio.create_task(publisher.call(Ask(text=other), agent(name))) for _ in range(10)]
        await eventually(lambda: backlog(server, namespace, "p") == backlog(server, namespace, "q") == 10)
        go_on.set()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*calls) == ["leaf"] * 20


async def test_agents_are_not_starved_by_one_that_is_slow(server: Server, namespace: str) -> None:
    go_on = asyncio.Event()

    async def slow(me: Doing, message: Note, ctx: MessageContext) -> None:
        await go_on.wait()

    async with (
        RedisRuntime(server.url, namespace=namespace, partitions=1, read_credit=4) as runtime,
        Publisher(server.url, namespace=namespace) as publisher,
    ):
        await host(runtime, "mixed", echo, slow)
        for _ in range(8):
            await publisher.send(Note(), agent("mixed", "slow"))
        async with asyncio.timeout(20):
            assert await publisher.call(Ask(text="quick"), agent("mixed", "quick")) == "quick"
        go_on.set()


@pytest.mark.parametrize(("waiting", "handed_over"), [(1, False), (12, False), (12, True)])
async def test_what_brings_replies_that_come_later_is_read_though_all_the_credit_waits_for_them(
    server: Server, namespace: str, waiting: int, handed_over: bool
) -> None:
    """Wherever it lies in the inbox, and behind however many messages for those that wait."""
    handles: dict[str, str] = {}

    async def ask(me: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text:
            return await me.call(AgentId("desk", message.text))
        handles[me.id.key] = str(defer_reply())
        return None

    async def answer(me: Doing, message: Note, ctx: MessageContext) -> None:
        if me.id.key in handles:
            await DeferredReply(handles[me.id.key]).answer("at last")

    def make() -> RedisRuntime:
        return RedisRuntime(server.url, namespace=namespace, partitions=1, read_credit=waiting, stop_grace=30.0)

    async with make() as runtime, Publisher(server.url, namespace=namespace) as publisher:
        await host(runtime, "desk", ask, answer)
        names = [str(n) for n in range(waiting)]
        calls = [asyncio.create_task(publisher.call(Ask(text=f"asked by {n}"), agent("desk", n))) for n in names]
        await eventually(lambda: len(handles) == waiting)
        async with make() as other:
            await host(other, "desk", ask, answer)
            leaving = asyncio.create_task(runtime.stop() if handed_over else asyncio.sleep(0))
            for n in range(1100):
                await publisher.send(Note(), agent("desk", names[n % waiting]))
            for key in handles:
                await publisher.send(Note(), agent("desk", key))
            async with asyncio.timeout(20):
                assert await asyncio.gather(*calls) == ["at last"] * waiting
                await leaving
