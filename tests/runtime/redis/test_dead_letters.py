"""Dead letters from Python: found wherever they lie, requeued once, discarded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription

from stagebell import DeadLetters, Publisher, RedisRuntime, agent_options
from stagebell.errors import MalformedMessage, Undeliverable, UnknownDeadLetter
from stagebell.messages.codec import unpack
from stagebell.runtime.redis.keys import EventsKeys, PartitionKeys
from tests.support.agents import Ask, Doing, Note
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@agent_options(retry=None)
class Moody(Doing):
    """Raises while it is in a bad mood."""


class Bench:
    """Agents of type "one" that hear of topics "t"; they raise while `bad` is set."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.url, self.namespace = server.url, namespace
        self.client: Any = server.client()
        self.bad = True
        self.heard: list[int] = []
        self.runtime = RedisRuntime(server.url, namespace=namespace, undeliverable_after=0.5)
        self.letters = DeadLetters(server.url, namespace=namespace)

    async def start(self) -> None:
        async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
            if self.bad:
                raise ValueError(f"number {message.number}\nis no good")
            self.heard.append(message.number)

        await Moody.register(self.runtime, "one", lambda: Moody(note=note))
        await self.runtime.add_subscription(TypeSubscription("t", "one"))
        await self.runtime.start()
        await self.letters.__aenter__()

    async def fail(self, *numbers: int, key: str = "a") -> None:
        """Let publishes with these numbers become dead letters."""
        before = await self.letters.count()
        for number in numbers:
            await self.runtime.publish_message(Note(number=number), TopicId("t", key))
        await self.until(before + len(numbers))

    async def until(self, count: int) -> None:
        async def reached() -> bool:
            return await self.letters.count() == count

        await eventually(reached, 5)


@pytest.fixture
async def bench(server: Server, namespace: str) -> AsyncIterator[Bench]:
    bench = Bench(server, namespace)
    await bench.start()
    yield bench
    await bench.letters.__aexit__(None, None, None)
    await bench.runtime.close()
    bench.client.close()


async def test_a_letter_says_what_became_of_its_message(bench: Bench) -> None:
    await bench.fail(1)
    (letter,) = await bench.letters.list()
    assert (letter.agent, letter.message_type, letter.attempts) == ("one/a", "Note", 1)
    assert letter.reason == "ValueError: number 1 is no good"
    assert letter.traceback.startswith("Traceback")
    assert letter.data == b'{"text":"","number":1}'
    assert await bench.letters.get(letter.id) == letter


async def test_the_newest_come_first_and_not_more_than_wanted(bench: Bench) -> None:
    for number in range(4):
        await bench.fail(number, key=f"k{number % 3}")
    assert [_number(letter) for letter in await bench.letters.list(limit=3)] == [3, 2, 1]
    assert len(await bench.letters.list(limit=None)) == await bench.letters.count() == 4
    assert await bench.letters.list(type="two") == []
    assert len([letter async for letter in bench.letters.walk(type="one")]) == 4


def _number(letter: Any) -> int:
    return int(letter.reason.split()[2])


async def test_a_requeued_message_is_handled_once(bench: Bench) -> None:
    await bench.fail(1)
    (letter,) = await bench.letters.list()
    bench.bad = False
    await bench.letters.requeue(letter.id)
    await eventually(lambda: bench.heard == [1], 5)
    with pytest.raises(UnknownDeadLetter):
        await bench.letters.requeue(letter.id)
    await bench.fail(key="a")
    assert bench.heard == [1]


async def test_one_that_fails_again_is_a_letter_again_and_the_walk_ends(bench: Bench) -> None:
    await bench.fail(1, 2)
    requeued = []
    async for letter in bench.letters.walk():
        await bench.letters.requeue(letter.id)
        requeued.append(letter.id)
        await bench.until(2)
    assert len(requeued) == 2
    assert not {letter.id for letter in await bench.letters.list()} & set(requeued)


async def test_two_operators_requeue_it_once(bench: Bench) -> None:
    await bench.fail(1)
    (letter,) = await bench.letters.list()
    bench.bad = False
    outcomes = await asyncio.gather(*(bench.letters.requeue(letter.id) for _ in range(5)), return_exceptions=True)
    assert any(outcome is None for outcome in outcomes)
    await eventually(lambda: bench.heard == [1], 5)
    assert not bench.client.xlen(_keys(bench, "one/a").inbox)
    assert bench.heard == [1]


def _keys(bench: Bench, agent: str) -> PartitionKeys:
    from stagebell.messages.ids import partition_of

    return PartitionKeys(bench.namespace, agent.partition("/")[0], partition_of(agent, 16))


async def test_a_call_comes_back_as_a_message_that_nobody_waits_for(bench: Bench) -> None:
    asked: list[int] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        asked.append(message.number)
        return "answer"

    await Doing.register(bench.runtime, "two", lambda: Doing(ask))
    keys = _keys(bench, "two/a")
    async with Publisher(bench.url, namespace=bench.namespace) as publisher:
        await publisher.call(Ask(number=1), AgentId("two", "a"))
        lost = await _dead_call(bench, keys)
        await bench.letters.requeue(lost)
        await eventually(lambda: asked == [1, 7], 5)
    await eventually(lambda: not bench.client.xlen(keys.inbox), 5)
    assert not bench.client.exists(f"sb:{{{bench.namespace}:c:gone}}:rep")


async def _dead_call(bench: Bench, keys: PartitionKeys) -> str:
    """As a call looks whose worker has died too often."""
    stream = f"sb:{{{bench.namespace}:c:gone}}:rep"
    envelope = (
        f'{{"v":1,"id":"call","type":"Ask","kind":"send","to":"two/a","reply":"s|{stream}|x",'
        '"deadline":1,"chain":["x.0.0"],"data":{"number":7}}'
    )
    told = {"in_id": "1-1", "reason": "crashed", "attempts": "4", "at": "1", "traceback": ""}
    id = bench.client.xadd(keys.dlq, {**told, "m": "x", "a": "two/a", "e": envelope})
    assert unpack(envelope.encode()).chain
    return f"two:{keys.tag.rpartition(':')[2]}/{id.decode()}"


async def test_a_discarded_letter_is_gone(bench: Bench) -> None:
    await bench.fail(1, 2)
    first, second = await bench.letters.list()
    await bench.letters.discard(first.id)
    assert [letter.id for letter in await bench.letters.list()] == [second.id]
    with pytest.raises(UnknownDeadLetter):
        await bench.letters.discard(first.id)
    with pytest.raises(UnknownDeadLetter):
        await bench.letters.get(first.id)


@pytest.mark.parametrize("id", ["", "one:3", "one:3/x", "one/1-1", "nowhere/1-1", "events/1", "one:3/1-1", "a:b:c/1-1"])
async def test_an_id_that_nobody_gave_out_is_unknown(bench: Bench, id: str) -> None:
    with pytest.raises(UnknownDeadLetter):
        await bench.letters.get(id)


async def test_an_event_of_a_type_that_is_known_by_now_reaches_its_agents(bench: Bench) -> None:
    events = EventsKeys(bench.namespace)
    bench.client.xadd(events.inbox, {"type": "Ask", "topic": "t/a", "data": "no json"})
    await bench.until(1)
    (letter,) = await bench.letters.list()
    assert (letter.id.partition("/")[0], letter.agent, letter.message_type) == ("events", "", "Ask")
    assert "JSON" in letter.reason
    await bench.letters.requeue(letter.id)
    await bench.until(1)  # it has not become better
    (again,) = await bench.letters.list()
    assert again.id != letter.id
    assert again.fields == letter.fields


async def test_letters_of_a_process_outlive_it_until_they_are_looked_after(server: Server, namespace: str) -> None:
    async def fail(agent: Doing, message: Note, ctx: MessageContext) -> None:
        raise ValueError("no luck")

    runtime = RedisRuntime(server.url, namespace=namespace)
    await Doing(note=fail).register_instance(runtime, AgentId("desk", "default"))
    await runtime.add_subscription(TypeSubscription("t", "desk"))
    async with DeadLetters(server.url, namespace=namespace) as letters:
        async with runtime:
            async with Publisher(server.url, namespace=namespace) as publisher:
                await publisher.publish(Note(), TopicId("t", "default"))

                async def dead() -> bool:
                    return await letters.count() == 1

                await eventually(dead, 5)
        (letter,) = await letters.list(type="desk")
        assert letter.id.startswith("w:")
        with pytest.raises(Undeliverable, match="desk"):
            await letters.requeue(letter.id)
        await letters.discard(letter.id)
        assert await letters.list() == []
    client: Any = server.client()
    assert not client.exists(f"sb:{{{namespace}}}:ended")
    client.close()


async def test_what_is_no_message_can_only_be_discarded(bench: Bench) -> None:
    keys = _keys(bench, "one/a")
    bench.client.xadd(keys.inbox, {"foo": "bar"})
    await bench.until(1)
    (letter,) = await bench.letters.list()
    assert (letter.agent, letter.message_type, dict(letter.fields)) == ("", "", {"foo": b"bar"})
    with pytest.raises(MalformedMessage):
        await bench.letters.requeue(letter.id)
    await bench.letters.discard(letter.id)
