"""A partition leaves a runtime while turns of it are open: they go on under holds, their agents' messages wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription

from stagebell import Publisher, RedisRuntime
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.runtime.redis.ownership import Ownership
from stagebell.runtime.redis.partition import Partition
from tests.failure.view import View
from tests.support.agents import Ask, Counting, Doing, Interleaved, Note, agent, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

Make = Callable[..., RedisRuntime]


@pytest.fixture
async def make(server: Server, namespace: str) -> AsyncIterator[Make]:
    """Runtimes of one namespace with one partition for each type; closed after the test."""
    made: list[RedisRuntime] = []

    def make(**options: Any) -> RedisRuntime:
        made.append(RedisRuntime(server.url, namespace=namespace, partitions=1, **options))
        return made[-1]

    yield make
    for runtime in made:
        await runtime.close()


@pytest.fixture
async def client(server: Server, namespace: str) -> AsyncIterator[Publisher]:
    """A client outside of all runtimes."""
    async with Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(Ask)
        yield publisher


class Waiting(Counting):
    """Counts, and waits at the gate while it counts the first of all messages."""

    def __init__(self, gate: asyncio.Event, entered: list[str], name: str) -> None:
        super().__init__()
        self.gate, self.entered, self.name = gate, entered, name

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        self.entered.append(f"{self.name} {message.text}")
        self.count += 1
        if message.text == "wait":
            await self.gate.wait()
        return self.count


async def two_runtimes(make: Make, gate: asyncio.Event, entered: list[str]) -> tuple[RedisRuntime, RedisRuntime]:
    """The first owns everything; the second has started after it."""
    runtimes = [make(stop_grace=5.0), make()]
    for name, runtime in zip(("old", "new"), runtimes, strict=True):
        await Waiting.register(runtime, "waiting", partial(Waiting, gate, entered, name))
        await runtime.start()
    return runtimes[0], runtimes[1]


async def test_a_turn_that_takes_too_long_runs_again_at_the_new_owner_at_once(
    make: Make, client: Publisher, server: Server, namespace: str
) -> None:
    """Its hold is given up with it, and not waited for."""
    entered: list[str] = []
    old, new = make(stop_grace=0.2, cancel_grace=0.1), make()
    for name, runtime, gate in (("old", old, asyncio.Event()), ("new", new, _open())):
        await Waiting.register(runtime, "waiting", partial(Waiting, gate, entered, name))
        await runtime.start()
    call = asyncio.create_task(client.call(Ask(text="wait"), agent("waiting")))
    await eventually(lambda: entered, within=5)
    later = asyncio.create_task(client.call(Ask(text="later"), agent("waiting")))
    await old.close()
    assert not server.client().exists(PartitionKeys(namespace, "waiting", 0).hold)
    assert [await asyncio.wait_for(each, 5) for each in (call, later)] == [1, 2]
    assert entered == ["old wait", "new wait", "new later"]


async def test_messages_of_a_held_agent_wait_in_order_while_others_go_on(make: Make, client: Publisher) -> None:
    gate, entered = asyncio.Event(), list[str]()
    old, _ = await two_runtimes(make, gate, entered)
    calls = [asyncio.create_task(client.call(Ask(text="wait"), agent("waiting")))]
    await eventually(lambda: entered, within=5)
    stopping = asyncio.create_task(old.close())
    await asyncio.wait_for(client.call(Ask(text="other"), agent("waiting", "another")), 5)
    for number in range(5):
        calls.append(asyncio.create_task(client.call(Ask(text=str(number)), agent("waiting"))))
        await asyncio.sleep(0)
    await asyncio.wait_for(client.call(Ask(text="other"), agent("waiting", "another")), 5)
    assert not any(call.done() for call in calls)
    assert entered == ["old wait", "new other", "new other"]
    gate.set()
    assert await asyncio.wait_for(asyncio.gather(*calls), 5) == [1, 2, 3, 4, 5, 6]
    assert entered[3:] == [f"new {number}" for number in range(5)]
    await asyncio.wait_for(stopping, 5)


async def test_an_agent_with_many_turns_at_once_ends_them_all(make: Make, client: Publisher) -> None:
    gate, ended = asyncio.Event(), list[str]()

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        started.append(message.text)
        await gate.wait()
        ended.append(message.text)

    started: list[str] = []
    old, new = make(stop_grace=5.0), make()
    for runtime in (old, new):
        await host(runtime, "many", note=note, topics=("news",), cls=Interleaved)
        await runtime.start()
    for text in "abc":
        await client.publish(Note(text=text), TopicId("news", "d"))
    await eventually(lambda: len(started) == 3, within=5)
    stopping = asyncio.create_task(old.close())
    await eventually(lambda: new._node is not None and any(":many:" in tag for tag in new._node.services.partitions), 5)
    gate.set()
    await asyncio.wait_for(stopping, 5)
    await asyncio.wait_for(new.stop_when_idle(), 5)
    assert sorted(started) == sorted(ended) == ["a", "b", "c"]


async def test_a_partition_that_comes_back_while_its_turn_is_open(make: Make, client: Publisher) -> None:
    """The worker holds an agent of a partition that it owns: what comes for it waits here, as anywhere else."""
    gate, entered = asyncio.Event(), list[str]()
    runtime = make()
    await Waiting.register(runtime, "waiting", partial(Waiting, gate, entered, "it"))
    await runtime.start()
    assert runtime._node is not None
    partitions, ownership = runtime._node.services.partitions, runtime._node._ownership
    call = asyncio.create_task(client.call(Ask(text="wait"), agent("waiting")))
    await eventually(lambda: entered, within=5)
    [tag] = [tag for tag in partitions if ":waiting:" in tag]
    first = partitions[tag]
    assert isinstance(first, Partition)
    await ownership._move(first)
    await eventually(lambda: partitions.get(tag) not in (None, first), within=5)
    later = asyncio.create_task(client.call(Ask(text="later"), agent("waiting")))
    assert await asyncio.wait_for(client.call(Ask(text="other"), agent("waiting", "another")), 5) == 1
    assert not call.done()
    assert not later.done()
    gate.set()
    assert [await asyncio.wait_for(each, 5) for each in (call, later)] == [1, 2]
    assert entered == ["it wait", "it other", "it later"]


async def test_a_hold_whose_turn_has_ended_is_given_up_when_the_new_owner_asks(
    make: Make, client: Publisher, server: Server, namespace: str
) -> None:
    """A server that went back may have it again, for a holder that is alive and knows nothing of it."""
    holder = make()
    await Waiting.register(holder, "other", partial(Waiting, _open(), [], "holder"))
    await holder.start()
    node = holder._node
    assert node is not None
    hold = f"{10**15}|1:{node.services.worker}:n|T"
    server.client().hset(PartitionKeys(namespace, "waiting", 0).hold, str(agent("waiting")), hold)
    owner, entered = make(), list[str]()
    await Waiting.register(owner, "waiting", partial(Waiting, _open(), entered, "owner"))
    await owner.start()
    assert await asyncio.wait_for(client.call(Ask(text="go"), agent("waiting")), 10) == 1
    assert not server.client().exists(PartitionKeys(namespace, "waiting", 0).hold)


def _open() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


class Noting(Counting):
    """Counts, and publishes to somebody whose type is not known yet."""

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        self.count += 1
        if message.text == "publish":
            await self.publish_message(Ask(), TopicId("later", "somebody"))
        return self.count


async def test_a_partition_moves_while_commits_of_idle_agents_wait(
    server: Server, namespace: str, client: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their turns have ended, their effects are still to come: here, under holds."""
    gate, waiting = asyncio.Event(), list[str]()
    runtimes = [RedisRuntime(server.url, namespace=namespace, partitions=2) for _ in range(2)]
    for runtime in runtimes:
        await Noting.register(runtime, "noting", Noting)
    old, new = runtimes
    await old.add_subscription(TypeSubscription("later", "later"))
    await old.start()
    directory = old._running("a test").services.directory
    find_place = directory.find_place

    async def find_later(agent: AgentId) -> Any:
        waiting.append(str(agent))
        await gate.wait()
        return await find_place(agent)

    monkeypatch.setattr(directory, "find_place", find_later)
    keys = [str(number) for number in range(8)]  # in both partitions
    calls = [asyncio.create_task(client.call(Ask(text="publish"), agent("noting", key))) for key in keys]
    await eventually(lambda: waiting, within=5)
    await new.start()
    name, view = new._running("a test").client.name, View(server.client(), namespace)
    await eventually(lambda: [key for key in view.owned_by(name) if ":noting:" in key], within=10)
    gate.set()
    assert await asyncio.wait_for(asyncio.gather(*calls), 8) == [1] * 8
    again = (client.call(Ask(), agent("noting", key)) for key in keys)
    assert await asyncio.wait_for(asyncio.gather(*again), 8) == [2] * 8
    for runtime in runtimes:
        await runtime.close()
    assert not [key for key in view.left_behind() if ":later:" not in key]
    view.client.close()


async def test_claiming_that_fails_is_told_and_tried_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim_all, failed = Ownership._claim_all, asyncio.Event()

    async def fails_once(self: Ownership) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("a mistake of ours")
        await claim_all(self)

    monkeypatch.setattr(Ownership, "_claim_all", fails_once)
    runtime = make()
    await Counting.register(runtime, "counter", Counting)
    await runtime.start()
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("counter")), 5) == 1
    assert failed.is_set()
    assert "a mistake of ours" in caplog.text
