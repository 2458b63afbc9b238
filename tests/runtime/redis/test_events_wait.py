"""Events from other systems wait in their stream while an inbox they are for is full; others pass, nobody overtakes."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import MessageContext, TypeSubscription

from stagebell import RedisRuntime
from stagebell.runtime.redis.keys import EventsKeys, PartitionKeys
from tests.support.agents import Doing, Note, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LIMIT = 3
CREDIT = 6  # the most events that wait before all others do


class Shop:
    """One runtime with small inboxes, and the agent types that take the topics of their names."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.namespace = namespace
        self.client: Any = server.client()
        self.heard: dict[str, list[int]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.runtime = RedisRuntime(
            server.url, namespace=namespace, partitions=1, inbox_limit=LIMIT, read_credit=CREDIT
        )

    async def host(self, name: str, *topics: str, is_open: bool = False) -> None:
        async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
            await self.gates[name].wait()
            self.heard[name].append(message.number)

        if is_open:
            self.gates[name].set()
        await host(self.runtime, name, note=note, topics=topics or (name,))

    def add(self, topic: str, *numbers: int) -> None:
        for number in numbers:
            fields = {"type": "Note", "topic": f"{topic}/default", "data": json.dumps({"number": number})}
            self.client.xadd(EventsKeys(self.namespace).inbox, fields)

    def inbox(self, name: str) -> int:
        return int(self.client.xlen(PartitionKeys(self.namespace, name, 0).inbox))

    @property
    def waiting(self) -> int:
        return int(self.client.xlen(EventsKeys(self.namespace).inbox))


@pytest.fixture
async def shop(server: Server, namespace: str) -> AsyncIterator[Shop]:
    shop = Shop(server, namespace)
    yield shop
    for gate in shop.gates.values():
        gate.set()
    await shop.runtime.close()
    shop.client.close()


async def test_events_for_a_full_inbox_wait_and_others_pass(shop: Shop) -> None:
    await shop.host("slow")
    await shop.host("quick", is_open=True)
    await shop.runtime.start()
    shop.add("slow", *range(5))
    await eventually(lambda: (shop.inbox("slow"), shop.waiting) == (LIMIT, 2), 8)
    shop.add("quick", *range(20))
    await eventually(lambda: shop.heard["quick"] == list(range(20)), 8)
    assert (shop.inbox("slow"), shop.waiting) == (LIMIT, 2)
    shop.gates["slow"].set()
    await eventually(lambda: shop.heard["slow"] == list(range(5)), 8)
    assert shop.waiting == 0


async def test_an_event_waits_for_all_its_recipients_and_is_not_overtaken(shop: Shop) -> None:
    await shop.host("slow", "slow", "both")
    await shop.host("quick", "quick", "both", is_open=True)
    await shop.runtime.start()
    shop.add("slow", *range(LIMIT))
    await eventually(lambda: shop.inbox("slow") == LIMIT, 8)
    shop.add("both", 10)
    shop.add("quick", 11, 12)
    await eventually(lambda: shop.waiting == 3, 8)
    await asyncio.sleep(0.3)  # longer than they are left alone
    assert (shop.heard["quick"], shop.waiting) == ([], 3)
    shop.gates["slow"].set()
    await eventually(lambda: shop.heard["quick"] == [10, 11, 12], 8)
    assert shop.heard["slow"] == [*range(LIMIT), 10]


async def test_when_many_wait_all_do_and_then_go_on_in_order(shop: Shop) -> None:
    await shop.host("slow")
    await shop.host("quick", is_open=True)
    await shop.runtime.start()
    shop.add("slow", *range(200))
    shop.add("quick", 1)
    await eventually(lambda: shop.inbox("slow") == LIMIT, 8)
    await asyncio.sleep(0.3)
    assert (shop.inbox("slow"), shop.waiting, shop.heard["quick"]) == (LIMIT, 200 - LIMIT + 1, [])
    shop.gates["slow"].set()
    await eventually(lambda: len(shop.heard["slow"]) == 200 and shop.heard["quick"], 20)
    assert shop.heard["slow"] == list(range(200))


async def test_a_type_that_nobody_hosts_is_in_nobodys_way(shop: Shop) -> None:
    """Nobody would ever make room in its inbox, so what comes for it waits there."""
    await shop.host("quick", is_open=True)
    await shop.runtime.add_subscription(TypeSubscription("gone", "gone"))
    await shop.runtime.start()
    shop.add("gone", *range(4 * CREDIT))
    shop.add("quick", 1)
    await eventually(lambda: shop.heard["quick"] == [1], 8)
    await eventually(lambda: (shop.inbox("gone"), shop.waiting) == (4 * CREDIT, 0), 8)
