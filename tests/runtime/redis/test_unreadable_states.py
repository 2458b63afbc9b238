"""An agent whose stored state this program cannot read: operators see what waits for it, and nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import CancellationToken, TopicId, TypeSubscription

from stagebell import RedisRuntime
from stagebell.errors import StateMismatch
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.runtime.redis.overview import Overview
from tests.failure.view import View
from tests.support.agents import Ask, Note, agent
from tests.support.servers import Server
from tests.support.tills import Till
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

CREDIT = 16
NEWER = '{"type":"Till","version":3,"state":{}}'
READABLE = '{"type":"Till","version":1,"state":{"sum":3}}'


class Shop:
    """A runtime with one till whose state a newer program has written."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.client: Any = server.client()
        self.view = View(self.client, namespace)
        self.keys = PartitionKeys(namespace, "till", 0)
        self.runtime = RedisRuntime(server.url, namespace=namespace, partitions=1, read_credit=CREDIT)
        self._url, self._namespace = server.url, namespace
        self.store(NEWER)

    def store(self, data: str) -> None:
        self.client.hset(self.keys.state("default"), mapping={"v": 1, "d": data})
        self.client.sadd(self.keys.ids, "till/default")

    async def open(self) -> None:
        await Till.register(self.runtime, "till", Till)
        await self.runtime.add_subscription(TypeSubscription("sales", "till"))
        await self.runtime.start()

    async def publish(self, *numbers: int, key: str = "default") -> None:
        for number in numbers:
            await self.runtime.publish_message(Note(number=number), TopicId("sales", key))

    async def paused(self) -> dict[str, int]:
        overview = await Overview.read(self._url, self._namespace)
        return {agent: number for worker in overview.workers for agent, number in worker.paused.items()}

    async def shows(self, paused: dict[str, int]) -> None:
        async def shown() -> bool:
            return await self.paused() == paused

        await eventually(shown, 8)


@pytest.fixture
async def shop(server: Server, namespace: str) -> AsyncIterator[Shop]:
    shop = Shop(server, namespace)
    await shop.open()
    yield shop
    await shop.runtime.close()
    shop.client.close()


async def test_what_waits_for_it_is_seen_and_is_no_reason_not_to_stop(shop: Shop) -> None:
    await shop.publish(1, 2, 3)
    await shop.shows({"till/default": 3})
    await shop.publish(4)
    await shop.shows({"till/default": 4})
    await shop.runtime.stop_when_idle(timeout=5)
    assert shop.view.backlog() == 4
    assert not shop.view.dead_letters()


async def test_its_neighbours_do_not_notice_however_much_waits(shop: Shop) -> None:
    await shop.publish(1)
    await shop.shows({"till/default": 1})
    await shop.publish(*range(2, 4 * CREDIT))
    await shop.publish(*range(CREDIT), key="neighbour")
    await eventually(lambda: shop.view.states("till").get("neighbour", {}).get("sum") == sum(range(CREDIT)), 8)
    await shop.shows({"till/default": 4 * CREDIT - 1})
    with pytest.raises(StateMismatch):
        await asyncio.wait_for(shop.runtime.send_message(Ask(number=1), agent("till")), 8)
    await shop.shows({"till/default": 4 * CREDIT - 1})


async def test_it_goes_on_in_order_when_its_state_can_be_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagebell.runtime.redis.pausing._LOOK_AGAIN_MS", 50)
    await shop.publish(*range(1, 3 * CREDIT))
    await shop.shows({"till/default": 3 * CREDIT - 1})
    shop.store(READABLE)
    await eventually(lambda: shop.view.backlog() == 0, 8)
    assert shop.view.state("till", "default") == {"sum": 3 + sum(range(3 * CREDIT))}
    await shop.shows({})


async def test_it_goes_on_when_an_operator_deletes_the_message(shop: Shop) -> None:
    await shop.publish(1)
    await shop.shows({"till/default": 1})
    ((entry, _),) = shop.client.xrange(shop.keys.inbox)
    shop.client.xdel(shop.keys.inbox, entry)
    await shop.shows({})


async def test_a_publish_that_waits_for_its_state_can_be_cancelled(shop: Shop) -> None:
    token = CancellationToken()
    await shop.runtime.publish_message(Note(number=1), TopicId("sales", "default"), cancellation_token=token)
    await shop.publish(2)
    await shop.shows({"till/default": 2})
    token.cancel()
    await eventually(lambda: shop.view.backlog() == 1, 8)
    await shop.shows({"till/default": 1})
    assert not shop.view.dead_letters()
