"""Stored states carry type and version: older ones are migrated, and those of a newer program wait for it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken, MessageContext, TopicId, TypeSubscription, message_handler

from stagebell import RedisRuntime
from stagebell.errors import MalformedState, StateMismatch
from stagebell.messages.ids import partition_of
from stagebell.runtime.redis.keys import PartitionKeys
from tests.failure.view import View
from tests.support.agents import Ask, Counting, Doing, Note, agent, host
from tests.support.servers import Server, available_kinds
from tests.support.tills import Till, Till2
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

GOLDEN = (Path(__file__).parents[2] / "golden" / "state.json").read_bytes().rstrip(b"\n")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server for all these tests; what is stored does not depend on its kind."""
    with Server(available_kinds()[0]) as server:
        yield server


class Space:
    """One namespace: its runtimes, one after the other or at once, and what it has stored."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.client: Any = server.client()
        self.view = View(self.client, namespace)
        self._server = server
        self._namespace = namespace
        self._runtimes: list[RedisRuntime] = []

    async def hosting(self, cls: type[Any], partitions: int = 1) -> RedisRuntime:
        runtime = RedisRuntime(self._server.url, namespace=self._namespace, partitions=partitions, stop_grace=0.2)
        self._runtimes.append(runtime)
        await cls.register(runtime, "till", cls)
        await runtime.add_subscription(TypeSubscription("sales", "till"))
        await runtime.start()
        return runtime

    def key(self, name: str = "default") -> str:
        return PartitionKeys(self._namespace, "till", partition_of(f"till/{name}", 1)).state(name)

    def store(self, data: bytes | str, name: str = "default") -> None:
        self.client.hset(self.key(name), mapping={"v": 1, "d": data})
        self.client.sadd(PartitionKeys(self._namespace, "till", 0).ids, f"till/{name}")

    def stored(self, name: str = "default") -> Any:
        return json.loads(self.client.hget(self.key(name), "d"))

    async def close(self) -> None:
        for runtime in self._runtimes:
            await runtime.close()
        for key in self.client.scan_iter(f"sb:{{{self._namespace}*", count=1000):
            self.client.delete(key)
        self.client.close()


@pytest.fixture
async def space(server: Server, namespace: str) -> AsyncIterator[Space]:
    space = Space(server, namespace)
    yield space
    await space.close()


async def sell(runtime: RedisRuntime, number: int) -> Any:
    return await asyncio.wait_for(runtime.send_message(Ask(number=number), agent("till")), 8)


async def publish(runtime: RedisRuntime, number: int, key: str = "default") -> None:
    await runtime.publish_message(Note(number=number), TopicId("sales", key))


# -- what is stored


async def test_a_state_is_stored_as_the_golden_file_says(space: Space) -> None:
    runtime = await space.hosting(Till)
    assert await sell(runtime, 3) == 3
    assert space.client.hget(space.key(), "d") == GOLDEN


@pytest.mark.parametrize(("cls", "answer"), [(Till, 4), (Till2, 400)])
async def test_the_golden_state_is_loaded(space: Space, cls: type[Any], answer: int) -> None:
    space.store(GOLDEN)
    assert await sell(await space.hosting(cls), 1) == answer


async def test_a_migrated_state_is_stored_by_the_next_turn(space: Space) -> None:
    old = await space.hosting(Till)
    await sell(old, 3)
    await old.stop()
    new = await space.hosting(Till2)
    assert await new.agent_save_state(agent("till")) == {"cents": 300}
    assert space.stored() == {"type": "Till", "version": 2, "state": {"cents": 300}}
    assert await sell(new, 1) == 400


async def test_a_runtimes_states_are_plain_and_of_the_classes_version(space: Space) -> None:
    space.store(GOLDEN)
    runtime = await space.hosting(Till2)
    assert await runtime.save_state() == {"till/default": {"cents": 300}}  # though nobody has loaded it
    await runtime.load_state({"till/other": {"cents": 7}})
    assert space.stored("other") == {"type": "Till", "version": 2, "state": {"cents": 7}}


async def test_a_runtimes_states_that_cannot_be_read_are_refused_not_handed_out(space: Space) -> None:
    space.store('{"type":"Till","version":9,"state":{}}')
    with pytest.raises(StateMismatch, match="till/default"):
        await (await space.hosting(Till)).save_state()


# -- what cannot be loaded

UNREADABLE = {
    "another-type": ('{"type":"Shelf","version":1,"state":{}}', "'Shelf' and version 1, its class reads type 'Till'"),
    "newer": ('{"type":"Till","version":3,"state":{}}', "version 3, its class reads type 'Till' and version 2"),
    "no-way": ('{"type":"Till","version":1,"state":{}}', "its migration from version 1 raised KeyError: 'sum'"),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_a_call_to_an_agent_whose_state_cannot_be_read_ends_in_the_error(space: Space, case: str) -> None:
    data, text = UNREADABLE[case]
    space.store(data)
    runtime = await space.hosting(Till2)
    for _ in range(2):
        with pytest.raises(StateMismatch) as caught:
            await sell(runtime, 1)
        assert text in str(caught.value)
    assert space.client.hget(space.key(), "d") == data.encode()
    space.store('{"type":"Till","version":2,"state":{"cents":1}}')
    assert await sell(runtime, 1) == 101  # put right, it is loaded


@pytest.mark.parametrize("data", ['{"sum":3}', '{"type":"Till","version":"1","state":{}}', "[]", "{"])
async def test_a_stored_state_without_type_and_version_is_malformed(space: Space, data: str) -> None:
    space.store(data)
    with pytest.raises(MalformedState, match="the state of till/default cannot be used"):
        await sell(await space.hosting(Till), 1)
    assert space.client.hget(space.key(), "d") == data.encode()


# -- a rolling upgrade


async def test_what_is_published_to_an_agent_of_a_newer_program_waits_for_it(
    space: Space, caplog: pytest.LogCaptureFixture
) -> None:
    new = await space.hosting(Till2)
    await sell(new, 1)
    await new.stop()
    old = await space.hosting(Till)
    for number in (2, 3):
        await publish(old, number)
    await publish(old, 5, "neighbour")
    await eventually(lambda: space.view.states("till").get("neighbour", {}).get("sum") == 5, 5)
    await eventually(lambda: "till/default is paused here" in caplog.text, 5)
    with pytest.raises(StateMismatch, match="version 2, its class reads type 'Till' and version 1"):
        await sell(old, 4)  # somebody waits for it
    assert space.view.backlog() == 2
    assert not space.view.dead_letters()
    await old.stop()

    newer = await space.hosting(Till2)
    await eventually(lambda: space.view.backlog() == 0, 5)
    assert await sell(newer, 0) == 600
    assert not space.view.dead_letters()
    assert caplog.text.count("till/default is paused here") == 1


async def test_calls_that_wait_behind_such_a_publish_end_too(space: Space) -> None:
    space.store('{"type":"Till","version":3,"state":{}}')
    runtime = await space.hosting(Till)
    await publish(runtime, 1)
    calls = await asyncio.gather(*(sell(runtime, 1) for _ in range(5)), return_exceptions=True)
    assert [type(outcome) for outcome in calls] == [StateMismatch] * 5
    assert space.view.backlog() == 1


async def test_a_paused_agent_goes_on_when_its_state_can_be_read_again(
    space: Space, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stagebell.runtime.redis.pausing._LOOK_AGAIN_MS", 50)
    space.store('{"type":"Till","version":3,"state":{}}')
    runtime = await space.hosting(Till)
    await publish(runtime, 1)
    await publish(runtime, 2)
    await eventually(lambda: "is paused here" in caplog.text, 5)
    space.store(GOLDEN)
    await eventually(lambda: space.view.backlog() == 0, 5)
    assert await sell(runtime, 0) == 6


async def test_an_upgrade_that_was_broken_off_and_done_again_loses_nothing(space: Space) -> None:
    names = [str(number) for number in range(40)]

    async def publish_to_all(runtime: RedisRuntime) -> None:
        for name in names:
            await publish(runtime, 1, name)

    def cents() -> dict[str, int]:
        states = space.view.states("till")
        return {name: state.get("cents", 0) or state["sum"] * 100 for name, state in states.items()}

    def shared() -> bool:
        owners = Counter(owner for key, owner in space.view.owners().items() if ":till:" in key)
        return len(owners) == 2 and min(owners.values()) >= 3

    old = await space.hosting(Till, partitions=8)
    await publish_to_all(old)
    await eventually(lambda: space.view.backlog() == 0, 20)
    new = await space.hosting(Till2, partitions=8)
    await eventually(shared, 20)
    await publish_to_all(old)
    await eventually(lambda: space.view.backlog() == 0, 20)
    await new.stop()

    upgraded = [name for name, state in space.view.states("till").items() if "cents" in state]
    assert 0 < len(upgraded) < len(names)
    await publish_to_all(old)
    await eventually(lambda: space.view.backlog() == len(upgraded), 20)
    await space.hosting(Till2, partitions=8)
    await old.stop()
    await eventually(lambda: space.view.backlog() == 0, 20)
    assert cents() == dict.fromkeys(names, 300)
    assert not space.view.dead_letters()


# -- nested turns


class Calling(Counting):
    """Calls another agent, which calls back, within one turn."""

    @message_handler
    async def on_note(self, message: Note, ctx: MessageContext) -> None:
        await self.send_message(Ask(), agent("peer"))
        self.count += 10


@pytest.mark.parametrize("form", ["same", "newer"])
async def test_a_turn_that_runs_again_reads_the_version_of_its_savepoints(
    space: Space, server: Server, namespace: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def call_back(peer: Doing, message: Ask, ctx: MessageContext) -> int:
        count: int = await peer.send_message(Ask(), agent("calling"))
        started.set()
        await go.wait()
        return count

    def runtime() -> RedisRuntime:
        return RedisRuntime(server.url, namespace=namespace, partitions=1, stop_grace=0.1)

    first, peers, second = runtime(), runtime(), runtime()
    await Calling.register(first, "calling", Calling)
    await Calling.register(second, "calling", Calling)
    await host(peers, "peer", call_back)
    await first.start()
    await peers.start()
    await first.add_subscription(TypeSubscription("start", "calling"))
    await first.publish_message(Note(), TopicId("start", "default"))
    await asyncio.wait_for(started.wait(), 8)
    (key,) = (name for name in space.client.scan_iter(f"sb:{{{namespace}*sp:*", count=1000))
    (savepoint,) = (value for field, value in space.client.hgetall(key).items() if field[:1].isdigit())
    assert json.loads(savepoint) == {"type": "Calling", "version": 1, "state": {"count": 1}}
    await first.stop()
    if form == "newer":
        for field, value in space.client.hgetall(key).items():
            if value == savepoint:
                space.client.hset(key, field, savepoint.replace(b'"version":1', b'"version":2'))
    await second.start()
    go.set()
    if form == "same":
        await eventually(lambda: space.view.state("calling", "default") == {"count": 11}, 8)
    else:
        await eventually(lambda: "calling/default is paused here" in caplog.text, 8)
        await eventually(lambda: space.view.backlog() == 1, 8)  # the publish alone; the peer has answered
        assert not space.view.dead_letters()
        await second.stop_when_idle(timeout=8)  # what waits for a newer program does not count
        await first.start()
        for field in (name for name, value in space.client.hgetall(key).items() if b'"version":2' in value):
            space.client.hset(key, field, savepoint)
        assert await asyncio.wait_for(first.send_message(Ask(), agent("calling")), 8) == 12
    for each in (first, peers, second):
        await each.close()


# -- tokens are no part of a state


class Keeping(Till):
    """Puts the token of its turn into its state."""

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> int:
        self.state["token"] = ctx.cancellation_token
        return 1


async def test_a_token_cannot_be_stored(space: Space) -> None:
    runtime = await space.hosting(Keeping)
    with pytest.raises(MalformedState, match="CancellationToken is not JSON serializable"):
        await sell(runtime, 1)
    assert not space.client.exists(space.key())


async def test_a_turn_that_runs_again_has_a_fresh_token(space: Space, server: Server, namespace: str) -> None:
    tokens: list[CancellationToken] = []

    class Waiting(Till):
        @message_handler
        async def on_note(self, message: Note, ctx: MessageContext) -> None:
            tokens.append(ctx.cancellation_token)
            if len(tokens) == 1:
                await asyncio.Event().wait()
            await self.add(message.number)

    first = await space.hosting(Waiting)
    await publish(first, 4)
    await eventually(lambda: len(tokens) == 1, 5)
    await first.stop()
    assert tokens[0].is_cancelled()
    await space.hosting(Waiting)
    await eventually(lambda: space.view.state("till", "default").get("sum") == 4, 5)
    assert len(tokens) == 2
    assert not tokens[1].is_cancelled()
    assert b"oken" not in space.client.hget(space.key(), "d")


async def test_errors_of_other_agents_do_not_pause_their_callers(
    space: Space, server: Server, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def call_till(agent_: Doing, message: Note, ctx: MessageContext) -> None:
        await agent_.call("till")

    space.store('{"type":"Till","version":3,"state":{}}')
    runtime = await space.hosting(Till)
    await host(runtime, "caller", note=call_till, topics=("calls",))
    await runtime.publish_message(Note(), TopicId("calls", "default"))
    with caplog.at_level(logging.CRITICAL):
        (letter,) = await eventually(space.view.dead_letters, 8)
    assert letter["a"] == "caller/default"
