"""Agents that are bound to their process: what is left of their messages when it ends, and what they handle once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId, TypeSubscription

from stagebell import RedisRuntime
from stagebell.errors import Undeliverable
from stagebell.runtime.redis.keys import NamespaceKeys, ProcessKeys
from stagebell.runtime.redis.partition import Partition
from stagebell.testing import crash
from tests.failure.view import View
from tests.support.agents import Ask, Bound, Doing, Note, agent, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class Place:
    """Runtimes of one namespace, and what the bound agent has begun."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.view = View(server.client(), namespace)
        self.begun: list[int] = []
        self.gate = asyncio.Event()
        self._url, self._namespace = server.url, namespace
        self._made: list[RedisRuntime] = []

    async def start(self, *, bound: bool = True, **options: Any) -> RedisRuntime:
        runtime = RedisRuntime(self._url, namespace=self._namespace, partitions=1, lease=0.6, **options)
        self._made.append(runtime)
        if bound:
            await host(runtime, "bound", self.handle, self.handle, cls=Bound, topics=("notes",))
        await host(runtime, "echo", echo)
        await runtime.start()
        return runtime

    async def handle(self, bound: Doing, message: Any, ctx: MessageContext) -> Any:
        self.begun.append(message.number)
        if message.text == "waits":
            await self.gate.wait()
        return "handled"

    async def close(self) -> None:
        self.gate.set()
        await asyncio.gather(*(runtime.close() for runtime in self._made))
        self.view.client.close()


@pytest.fixture
async def place(server: Server, namespace: str) -> AsyncIterator[Place]:
    place = Place(server, namespace)
    yield place
    await place.close()


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "cut off"])
async def test_what_its_process_leaves_is_set_aside(place: Place, in_order: bool) -> None:
    """I14: nobody else can run it, so its callers hear of it and operators find it."""
    first, other = await place.start(stop_grace=0.1), await place.start(bound=False)
    call = asyncio.create_task(other.send_message(Ask(text="waits"), agent("bound")))
    await other.publish_message(Note(text="waits"), TopicId("notes", "default"))
    await eventually(lambda: len(place.begun) == 2, 5)
    if not in_order:
        first._running("a test").client.link.break_off("as the test wants")
    await asyncio.wait_for(first.close(), 8)
    with pytest.raises(Undeliverable):
        await asyncio.wait_for(call, 8)
    await eventually(lambda: place.view.backlog() == 0, 5)
    letters = place.view.dead_letters()
    assert sum('"Note"' in letter["e"] for letter in letters) == 1
    assert all("has ended" in letter["reason"] for letter in letters)


async def test_a_late_bell_brings_it_nothing_that_others_have_ended(place: Place) -> None:
    """Its inbox was taken for that of a dead process; what is done in memory cannot be taken back."""
    runtime = await place.start()
    node = runtime._running("a test")
    keys = ProcessKeys(place.view.namespace, node.client.name)
    before = await eventually(lambda: node.services.partitions.get(keys.tag), 5)
    node._partition_lost(before)
    await eventually(lambda: node.services.partitions.get(keys.tag) not in (None, before), 5)
    again = node.services.partitions[keys.tag]
    assert isinstance(again, Partition)
    await eventually(lambda: again.handed_on_everything, 5)
    envelope = b'{"v":1,"id":"x","type":"Ask","kind":"send","to":"bound/default","data":{"text":"","number":7}}'
    again.heard("1-0", "-", "a turn", "bound/default", envelope)
    await eventually(lambda: again.generation == 1, 5)  # it was not there: all is read again
    await eventually(lambda: again.handed_on_everything, 5)
    assert place.begun == []


async def test_a_turn_calls_it_by_its_journal_also_in_its_own_process(place: Place) -> None:
    """When it runs again, where that agent is perhaps not, its calls have the same places and the same replies."""
    gate, entered = asyncio.Event(), asyncio.Event()

    async def ask(asking: Doing, message: Ask, ctx: MessageContext) -> Any:
        answers = [await asking.call("bound", number=1), await asking.call("echo", "two")]
        entered.set()
        await gate.wait()
        return answers

    other = await place.start(bound=False)
    first = RedisRuntime(place._url, namespace=place._namespace, partitions=1, lease=0.6)
    await host(first, "bound", place.handle, cls=Bound)
    await host(first, "asking", ask)
    await first.start()
    call = asyncio.create_task(other.send_message(Ask(), agent("asking")))
    await asyncio.wait_for(entered.wait(), 8)
    await crash(first)
    gate.set()
    heir = RedisRuntime(place._url, namespace=place._namespace, partitions=1, lease=0.6)
    place._made.append(heir)
    await host(heir, "bound", place.handle, cls=Bound)
    await host(heir, "asking", ask)
    await heir.start()
    assert await asyncio.wait_for(call, 8) == ["handled", "two"]
    assert place.begun == [1]


async def test_a_turn_that_runs_again_has_the_reply_of_one_that_is_gone(place: Place) -> None:
    """I9: its type has ended with its process, and what it replied is in the journal."""
    gate, answers = asyncio.Event(), list[Any]()

    async def ask(asking: Doing, message: Note, ctx: MessageContext) -> None:
        answers.append(await asking.call("bound", number=1))
        if len(answers) == 1:
            await gate.wait()
            raise ValueError("as the test wants")

    first = await place.start()
    other = await place.start(bound=False)
    await host(other, "asking", note=ask)
    await other.add_subscription(TypeSubscription("asking", "asking"))
    await other.publish_message(Note(), TopicId("asking", "default"))
    await eventually(lambda: answers, 8)
    await first.close()
    directory = other._running("a test").services.directory
    await eventually(lambda: directory.place(agent("bound")) is None, 5)
    gate.set()
    await eventually(lambda: len(answers) == 2, 5)
    assert (answers, place.begun) == (["handled"] * 2, [1])


async def test_a_subscription_that_outlived_its_process_reaches_nobody(place: Place) -> None:
    """Else the type would become known as one that is spread over workers, and no process could hold it any more."""
    registry = NamespaceKeys(place.view.namespace).reg
    stored = {"kind": "type", "topic": "notes", "agent": "bound", "id": "x", "w": "a-process-that-is-gone"}
    other = await place.start(bound=False)
    place.view.client.hset(registry, "s:type:notes:bound", json.dumps(stored))
    place.view.client.hincrby(registry, "v", 1)
    await other.publish_message(Note(number=1), TopicId("notes", "default"))
    assert not place.view.client.hexists(registry, "t:bound")
    await place.start()
    await other.publish_message(Note(number=2), TopicId("notes", "default"))
    await eventually(lambda: place.begun == [2], 5)
