"""What a foreign hand wrote spoils what it touches and nothing else; it is logged once and does not stop us."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import AgentId, TopicId, TypeSubscription

from stagebell import Publisher, RedisRuntime
from stagebell.errors import MalformedState, Undeliverable
from stagebell.messages.ids import partition_of
from stagebell.runtime.redis.keys import EventsKeys, NamespaceKeys, PartitionKeys, ProcessKeys
from tests.support.agents import Ask, Counting, Doing, Note, agent, echo
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class Bench:
    """A runtime with an agent type that echoes calls and notes publishes, and a client to spoil its keys."""

    def __init__(self, server: Server, namespace: str, log: pytest.LogCaptureFixture) -> None:
        self.url = server.url
        self.namespace = namespace
        self.client: Any = server.client()
        self.shared = NamespaceKeys(namespace)
        self.notes: list[int] = []
        self.runtime = RedisRuntime(server.url, namespace=namespace, undeliverable_after=0.5)
        self._log = log

    async def start(self) -> None:
        async def note(_: Doing, message: Note, __: Any) -> None:
            self.notes.append(message.number)

        await Doing.register(self.runtime, "doing", lambda: Doing(echo, note))
        await self.runtime.add_subscription(TypeSubscription("t", "doing"))
        await self.runtime.start()
        assert await self.call() == "warm"

    async def call(self, text: str = "warm", key: str = "default") -> str:
        answer = await asyncio.wait_for(self.runtime.send_message(Ask(text=text), agent("doing", key)), 8)
        return answer if isinstance(answer, str) else answer.text

    def keys(self, key: str = "default") -> PartitionKeys:
        return PartitionKeys(self.namespace, "doing", partition_of(f"doing/{key}", 16))

    def errors(self, part: str) -> list[str]:
        records = [r for r in self._log.records if r.levelno >= logging.ERROR]
        return [r.getMessage() for r in records if part in r.getMessage()]

    def letters(self, stream: str) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.client.xrange(stream)]

    def set_registry(self, field: str, value: str) -> None:
        self.client.hset(self.shared.reg, field, value)
        self.client.hincrby(self.shared.reg, "v", 1)


@pytest.fixture
async def bench(server: Server, namespace: str, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Bench]:
    bench = Bench(server, namespace, caplog)
    await bench.start()
    yield bench
    await bench.runtime.close()
    for pattern in (f"sb:{{{namespace}}}*", f"sb:{{{namespace}:*"):
        for key in bench.client.scan_iter(pattern, count=1000):
            bench.client.delete(key)
    bench.client.close()


# -- the registry

BAD_FIELDS = {
    "subscription-no-json": ("s:bad", "not json"),
    "subscription-of-an-unknown-kind": ("s:bad", '{"kind": "x", "topic": "t", "agent": "doing", "id": "1"}'),
    "subscription-without-keys": ("s:bad", '{"kind": "type"}'),
    "subscription-of-numbers": ("s:bad", '{"kind": "type", "topic": 1, "agent": 2, "id": 3}'),
    "subscription-too-deep": ("s:bad", "[" * 100_000),
    "type-no-json": ("t:other", "not json"),
    "type-null": ("t:other", '{"p": null}'),
    "type-no-partitions": ("t:other", '{"p": 0}'),
    "type-negative": ("t:other", '{"p": -3}'),
    "type-too-many": ("t:other", '{"p": 300000}'),
    "type-list": ("t:other", "[1]"),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
async def test_a_registry_field_that_cannot_be_read_is_left_out(bench: Bench, case: str) -> None:
    field, value = BAD_FIELDS[case]
    bench.set_registry(field, value)
    for number in (1, 2):
        await bench.runtime.publish_message(Note(number=number), TopicId("t", "default"))
    async with Publisher(bench.url, namespace=bench.namespace) as publisher:
        await publisher.publish(Note(number=3), TopicId("t", "default"))
    await eventually(lambda: sorted(bench.notes) == [1, 2, 3])
    here = [text for text in bench.errors("is left out") if repr(field) in text]
    assert 1 <= len(here) <= 2  # once in the runtime, once in the publisher


async def test_a_spoilt_type_spoils_only_calls_to_it(bench: Bench) -> None:
    bench.set_registry("t:other", '{"p": 0}')
    await bench.runtime.add_subscription(TypeSubscription("t", "other"))
    with pytest.raises(Undeliverable):
        await asyncio.wait_for(bench.runtime.send_message(Ask(), AgentId("other", "x")), 5)
    await bench.runtime.publish_message(Note(number=1), TopicId("t", "default"))
    await eventually(lambda: bench.notes == [1])


async def test_workers_of_a_wrong_type_do_not_keep_calls_from_ending(bench: Bench) -> None:
    async with Publisher(bench.url, namespace=bench.namespace, undeliverable_after=0.5) as publisher:
        bench.set_registry("t:nobody", '{"p": 4}')
        bench.client.delete(bench.shared.workers)
        bench.client.set(bench.shared.workers, "wrong")
        with pytest.raises(Undeliverable):
            await asyncio.wait_for(publisher.call(Ask(), AgentId("nobody", "x")), 8)
    assert bench.errors("has a type that none of us wrote")
    bench.client.delete(bench.shared.workers)


# -- inboxes

MANY = {f"f{number}": "x" for number in range(5_000)}
FOREIGN: dict[str, dict[str, Any]] = {
    "none-of-our-fields": {"foo": "bar"},
    "no-agent": {"m": "q", "e": "{}"},
    "no-envelope": {"m": "q", "a": "doing/default"},
    "turn-id-no-text": {"m": b"\xff\xfe", "a": "doing/default", "e": "{}"},
    "agent-no-text": {"m": "q", "a": b"doing/\xff", "e": "{}"},
    "thousands-of-fields": MANY | {"m": "q", "a": "doing/default", "e": "{}"},
    "thousands-of-foreign-fields": MANY,
}


@pytest.mark.parametrize("case", FOREIGN)
async def test_a_foreign_entry_goes_to_the_dead_letters_once(
    bench: Bench, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = bench.keys()
    id = bench.client.xadd(keys.inbox, FOREIGN[case])
    assert await bench.call("after") == "after"
    await eventually(lambda: not bench.client.xlen(keys.inbox), 5)
    (letter,) = bench.letters(keys.dlq)
    assert letter[b"in_id"] == id
    assert letter[b"reason"]
    if "thousands" not in case:
        assert letter.items() >= {_bytes(k): _bytes(v) for k, v in FOREIGN[case].items()}.items()
    else:
        assert len(letter) < 10
    assert "is back" not in caplog.text


async def test_a_message_for_an_agent_of_another_partition_is_set_aside(bench: Bench) -> None:
    keys = bench.keys()
    here = partition_of("doing/default", 16)
    stray = next(name for name in map(str, range(100)) if partition_of(f"doing/{name}", 16) != here)
    note = {"v": 1, "id": "1", "type": "Note", "kind": "publish", "topic": "a/b", "data": {"number": 1}}
    bench.client.xadd(keys.inbox, {"m": "q", "a": f"doing/{stray}", "e": json.dumps(note)})
    assert await bench.call("after") == "after"
    await eventually(lambda: not bench.client.xlen(keys.inbox), 5)
    (letter,) = bench.letters(keys.dlq)
    assert b"another partition" in letter[b"reason"]
    assert not bench.notes


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("case", ["none-of-our-fields", "turn-id-no-text", "no-envelope", "thousands-of-fields"])
async def test_a_foreign_entry_at_a_process_that_ended_is_set_aside(bench: Bench, case: str) -> None:
    keys = ProcessKeys(bench.namespace, "ended")
    bench.client.xadd(keys.inbox, FOREIGN[case])
    bench.client.zadd(bench.shared.workers, {"ended": 1})
    await eventually(lambda: bench.client.zscore(bench.shared.workers, "ended") is None, 10)
    assert len(bench.letters(keys.dlq)) == 1
    assert not bench.client.xlen(keys.inbox)


# -- events


async def test_an_event_of_thousands_of_fields_is_set_aside(bench: Bench) -> None:
    events = EventsKeys(bench.namespace)
    bench.client.xadd(events.inbox, MANY | {"type": "Note", "data": "{}"})
    (letter,) = await eventually(lambda: bench.letters(events.dlq), 5)
    assert letter[b"type"] == b"Note"
    assert len(letter) < 10
    bench.client.xadd(events.inbox, {"type": "Note", "topic": "t/default", "data": '{"number": 4}'})
    await eventually(lambda: bench.notes == [4], 5)


# -- streams that are none


async def test_events_of_a_wrong_type_do_not_make_us_deaf(bench: Bench) -> None:
    events = EventsKeys(bench.namespace)
    bench.client.xadd(events.inbox, {"type": "Note", "topic": "t/default", "data": '{"number": 1}'})
    await eventually(lambda: bench.notes == [1], 5)
    bench.client.delete(events.inbox)
    bench.client.lpush(events.inbox, "wrong")
    await eventually(lambda: bench.errors("is no stream"), 5)
    for number in range(3):
        assert await bench.call(str(number)) == str(number)
    assert len(bench.errors("is no stream")) == 1
    bench.client.delete(events.inbox)
    bench.client.xadd(events.inbox, {"type": "Note", "topic": "t/default", "data": '{"number": 2}'})
    await eventually(lambda: bench.notes == [1, 2], 10)


async def test_a_bell_of_a_wrong_type_does_not_make_us_deaf(bench: Bench) -> None:
    (bell,) = bench.client.scan_iter(f"sb:{{{bench.namespace}:w:*}}:bell", count=1000)
    bench.client.delete(bell)
    bench.client.set(bell, "wrong")
    assert await bench.call("still") == "still"
    await eventually(lambda: len(bench.errors("is no stream")) == 1, 5)
    bench.client.delete(bell)
    assert await bench.call("again") == "again"


# -- states


class Saving(Doing):
    """Returns as its state whatever the test hands it."""

    state: Any = None

    def __init__(self) -> None:
        super().__init__(echo)

    async def save_state(self) -> Any:
        return self.state


def nested(depth: int) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for _ in range(depth):
        state = {"s": state}
    return state


BAD_STATES: dict[str, Any] = {
    "none": None,
    "list": [],
    "numbers-as-keys": {1: "one"},
    "too-deep": nested(100_000),
    "surrogate": {"s": "\udc80"},
    "no-json": {"s": object()},
}


@pytest.mark.parametrize("case", BAD_STATES)
async def test_a_state_that_cannot_be_stored_is_told_to_the_caller(bench: Bench, case: str) -> None:
    await Saving.register(bench.runtime, "saving", Saving)
    Saving.state = {"fine": True}
    assert await bench.runtime.send_message(Ask(text="a"), agent("saving"))
    Saving.state = BAD_STATES[case]
    with pytest.raises(MalformedState):
        await bench.runtime.send_message(Ask(text="b"), agent("saving"))
    Saving.state = {"fine": True}
    assert await bench.runtime.send_message(Ask(text="c"), agent("saving"))


# -- keys of a turn


@pytest.mark.parametrize("which", ["state", "run", "ids", "dlq"])
async def test_a_spoilt_key_of_a_turn_does_not_keep_the_caller_waiting(bench: Bench, which: str) -> None:
    await Counting.register(bench.runtime, "counter", Counting)
    await bench.runtime.send_message(Ask(), agent("counter"))
    keys = PartitionKeys(bench.namespace, "counter", partition_of("counter/default", 16))
    key = keys.state("default") if which == "state" else getattr(keys, which)
    bench.client.delete(key)
    bench.client.set(key, "wrong")
    for _ in range(2):
        call = bench.runtime.send_message(Ask(), agent("counter"))
        (outcome,) = await asyncio.wait_for(asyncio.gather(call, return_exceptions=True), 8)
        assert isinstance(outcome, int | Exception)
    bench.client.delete(key)
    assert isinstance(await asyncio.wait_for(bench.runtime.send_message(Ask(), agent("counter")), 8), int)
