"""A full inbox takes no more from outside: who sends waits or hears of it, in order, and agents are never refused."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from autogen_core import AgentId, MessageContext, TopicId

from stagebell import Publisher, RedisRuntime
from stagebell.errors import Busy
from stagebell.runtime.redis.keys import PartitionKeys
from tests.support.agents import Ask, Bound, Doing, Note, agent, collect, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class Gate:
    """Lets the messages of an agent through when it is opened, and writes down their numbers."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.heard: list[int] = []
        self.open = asyncio.Event()
        if is_open:
            self.open.set()

    async def note(self, me: Doing, message: Note, ctx: MessageContext) -> None:
        await self.open.wait()
        self.heard.append(message.number)

    async def ask(self, me: Doing, message: Ask, ctx: MessageContext) -> int:
        await self.open.wait()
        self.heard.append(message.number)
        return message.number


def length(server: Server, namespace: str, name: str) -> int:
    return int(server.client().xlen(PartitionKeys(namespace, name, 0).inbox))


def runtime_of(server: Server, namespace: str, **options: Any) -> RedisRuntime:
    return RedisRuntime(server.url, namespace=namespace, partitions=1, **options)


def publisher_of(server: Server, namespace: str, when_full: Literal["wait", "raise"], **options: Any) -> Publisher:
    return Publisher(server.url, namespace=namespace, inbox_limit=3, when_full=when_full, **options)


async def test_a_full_inbox_is_told_at_once_to_who_wants_to_know(server: Server, namespace: str) -> None:
    gate = Gate()
    async with (
        runtime_of(server, namespace, inbox_limit=3, when_full="raise") as runtime,
        publisher_of(server, namespace, "raise") as publisher,
    ):
        await host(runtime, "gated", gate.ask, gate.note)
        for number in range(3):
            await publisher.send(Note(number=number), agent("gated"))
        with pytest.raises(Busy, match="holds 3 messages") as refused:
            await publisher.send(Note(number=9), agent("gated"))
        assert (refused.value.recipient, refused.value.length) == ("gated/default", 3)
        with pytest.raises(Busy):
            await runtime.send_message(Ask(number=9), agent("gated"))
        gate.open.set()
        await eventually(lambda: length(server, namespace, "gated") == 0)
        assert await publisher.call(Ask(number=3), agent("gated")) == 3
        assert gate.heard == [0, 1, 2, 3]


async def test_who_waits_for_room_waits_in_order_and_in_nobodys_way(server: Server, namespace: str) -> None:
    gate = Gate()
    async with runtime_of(server, namespace) as runtime, publisher_of(server, namespace, "wait") as publisher:
        await host(runtime, "gated", gate.ask, gate.note, topics=("numbers",))
        await host(runtime, "free", echo)
        sends: list[asyncio.Task[Any]] = []
        for number in range(60):
            if number % 3 == 0:
                sends.append(asyncio.ensure_future(publisher.call(Ask(number=number), agent("gated"))))
            elif number % 3 == 1:
                sends.append(asyncio.ensure_future(publisher.send(Note(number=number), agent("gated"))))
            else:
                topic = TopicId("numbers", "default")
                sends.append(asyncio.ensure_future(publisher.publish(Note(number=number), topic)))
        await eventually(lambda: length(server, namespace, "gated") == 3)
        assert await publisher.call(Ask(text="free"), agent("free")) == "free"
        assert length(server, namespace, "gated") == 3
        gate.open.set()
        await asyncio.gather(*sends)
        await eventually(lambda: len(gate.heard) == 60, within=10)
        assert gate.heard == list(range(60))


async def test_order_survives_an_inbox_that_is_full_now_and_then(server: Server, namespace: str) -> None:
    """Room appears while sends are under way: one that was sent later must not be taken first."""
    gate = Gate(is_open=True)
    async with runtime_of(server, namespace) as runtime, publisher_of(server, namespace, "wait") as publisher:
        await host(runtime, "gated", gate.ask, gate.note)
        await asyncio.gather(*(publisher.send(Note(number=number), agent("gated")) for number in range(300)))
        await eventually(lambda: len(gate.heard) == 300, within=10)
        assert gate.heard == list(range(300))


async def test_who_has_waited_long_enough_hears_that_the_inbox_is_full(server: Server, namespace: str) -> None:
    gate = Gate()
    async with (
        runtime_of(server, namespace) as runtime,
        publisher_of(server, namespace, "wait", server_patience=0.3) as publisher,
    ):
        await host(runtime, "gated", gate.ask, gate.note)
        for number in range(3):
            await publisher.send(Note(number=number), agent("gated"))
        ends = await asyncio.gather(
            *(publisher.send(Note(number=9), agent("gated")) for _ in range(3)), return_exceptions=True
        )
        assert [type(end) for end in ends] == [Busy, Busy, Busy]
        with pytest.raises(TimeoutError):
            await publisher.call(Ask(number=9), agent("gated"), timeout=0.1)
        gate.open.set()
        await eventually(lambda: length(server, namespace, "gated") == 0)
        await publisher.send(Note(number=3), agent("gated"))
        await eventually(lambda: gate.heard == [0, 1, 2, 3])


async def test_what_agents_send_is_never_refused(server: Server, namespace: str) -> None:
    heard: list[str] = []

    async def flood(me: Doing, message: Ask, ctx: MessageContext) -> str:
        for number in range(10):
            await me.publish_message(Note(text=str(number)), TopicId("flood", "default"))
        return await me.call(AgentId(message.text, "default")) if message.text else "flooded"

    async with runtime_of(server, namespace, inbox_limit=1, when_full="raise") as runtime:
        await host(runtime, "flooded", note=collect(heard), topics=("flood",))
        await host(runtime, "flooding", flood)
        await host(runtime, "bound", flood, cls=Bound)
        assert await runtime.send_message(Ask(text="bound"), agent("flooding")) == "flooded"
        await eventually(lambda: len(heard) == 20)
