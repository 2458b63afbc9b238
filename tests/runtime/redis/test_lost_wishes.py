"""I13: the server has lost what a worker knows of, a wish to end a message or a reply: no turn ends on that ground."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription, message_handler

from stagebell import Publisher, RedisRuntime, Retry, agent_options
from stagebell.runtime.redis.keys import ProcessKeys
from stagebell.runtime.redis.partition import Partition
from tests.runtime.redis.test_giving_up import FAR, Back, Bench, Waits
from tests.runtime.redis.test_savepoints import Diary, Step
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
async def bench(server: Server, namespace: str) -> AsyncIterator[Bench]:
    async with Publisher(server.url, namespace=namespace) as client:
        bench = Bench(server, namespace, client)
        yield bench
        await bench.close()


def tell_of_a_lost_wish(bench: Bench, name: str) -> None:
    """Ring for the end of the message whose first step has this name, by an entry that the server has lost since."""
    (inbox, entry_id, turn_id) = bench.find(name)
    head, client = inbox.removesuffix("in"), bench.view.client
    owner = ProcessKeys(bench.view.namespace, client.hget(f"{head}own", "owner").decode())
    fields = {"m": turn_id, "i": entry_id, "w": "cancel"}
    lost = client.xadd(f"{head}ctl", fields)
    with client.pipeline() as pipe:
        pipe.xdel(f"{head}ctl", lost)
        pipe.xadd(owner.bell, {"k": "end", "p": inbox[4:].partition("}")[0], "c": lost, **fields})
        pipe.execute()


class Witness(Diary):
    """Counts how often its handler starts for each step, and what it knows of the ends of others."""

    starts: list[str]
    started: asyncio.Event
    gate: asyncio.Event

    def start(self, message: Step) -> bool:
        """Note it; says whether it is the first time."""
        name = message.names[0]
        self.lines.append(name)
        self.starts.append(name)
        self.started.set()
        return self.starts.count(name) == 1


def anew(cls: type[Witness]) -> type[Witness]:
    """The class, as each test begins with it."""
    cls.starts, cls.started, cls.gate = [], asyncio.Event(), asyncio.Event()
    return cls


@agent_options(state_type="Diary")
class Waiting(Witness):
    """The first time it waits for the gate."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        if self.start(message):
            await self.gate.wait()


@pytest.mark.parametrize("which", ["runs", "waits"])
async def test_a_message_is_not_ended_by_a_wish_that_is_lost(bench: Bench, which: str) -> None:
    anew(Waiting)
    runtime = await bench.start(Waiting)
    calls = [bench.call("runs")]
    await asyncio.wait_for(Waiting.started.wait(), 8)
    calls.append(bench.call("waits"))
    await eventually(lambda: bench.view.backlog() == 2, 8)
    tell_of_a_lost_wish(bench, which)
    await eventually(lambda: Waiting.starts.count("runs") == 2, 8)  # all is read again
    Waiting.gate.set()
    await asyncio.wait_for(asyncio.gather(*calls), 8)
    assert await bench.lines(runtime) == ["runs", "waits"]


@agent_options(state_type="Diary")
class Twice(Witness):
    """Calls itself back by way of another, twice at once; one of these calls waits behind the other."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        first = self.start(message)
        if message.names[0] == "outer":
            steps = (Step(names=["back", f"nested-{key}"], fails=[]) for key in "ab")
            await asyncio.gather(*map(self.send_message, steps, (AgentId("back", key) for key in "ab")))
        elif first:
            await self.gate.wait()


async def test_a_message_that_takes_its_place_is_not_ended_by_a_wish_that_is_lost(bench: Bench) -> None:
    anew(Twice)
    runtime = await bench.start(Twice, Back)
    call = bench.call("outer")
    await eventually(lambda: len(Twice.starts) == 2 and bench.view.backlog() == 5, 8)
    (waits,) = {"nested-a", "nested-b"} - set(Twice.starts)
    tell_of_a_lost_wish(bench, waits)
    await eventually(lambda: _wanted(runtime), 8)
    Twice.gate.set()
    await asyncio.wait_for(call, 8)
    assert sorted(await bench.lines(runtime)) == ["nested-a", "nested-b", "outer"]


def _wanted(runtime: RedisRuntime) -> bool:
    owned = runtime._running("a test").services.partitions.values()
    return any(each.ends.wanted for each in owned if isinstance(each, Partition))


NOT_SOON = Retry(attempts=3, first_delay=60.0, longest_delay=60.0)


@agent_options(state_type="Diary", retry=NOT_SOON)
class Calling(Witness):
    """Calls one who is far away; the first time it may fail while that call is open."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        first = self.start(message)
        call = asyncio.ensure_future(self.send_message(Step(names=["far"], fails=[]), FAR))
        if first and message.names[0] == "fails":
            await Far.entered.wait()
            raise ValueError("as asked")
        await call


class Far(Waits):
    """Waits for its gate."""

    gate: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.mark.parametrize("name", ["runs", "fails"])
async def test_the_calls_of_a_message_are_not_ended_by_a_wish_that_is_lost(bench: Bench, name: str) -> None:
    """Those of a turn that runs, and those of an attempt that has failed and is made again later."""
    anew(Calling)
    Far.entered, Far.cancelled, Far.gate = asyncio.Event(), asyncio.Event(), asyncio.Event()
    await bench.start(Far)
    runtime = await bench.start(Calling)
    await runtime.add_subscription(TypeSubscription("steps", "diary"))
    await bench.client.publish(Step(names=[name], fails=[]), TopicId("steps", "d"))
    await asyncio.wait_for(Far.entered.wait(), 8)
    if name == "fails":
        await eventually(lambda: bench.count_of_failures() == 1, 8)
    tell_of_a_lost_wish(bench, name)
    await eventually(lambda: len(Calling.starts) == 2, 8)
    Far.gate.set()
    assert await bench.lines(runtime) == [name]
    assert not Far.cancelled.is_set()


class Echo(Waits):
    """Answers at once."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""


@agent_options(state_type="Diary", retry=NOT_SOON)
class Failing(Witness):
    """Fails the first time, on a reply that the server loses just then."""

    bench: Bench

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        first = self.start(message)
        await self.send_message(Step(names=["far"], fails=[]), FAR)
        if first:
            self.bench.lose_replies()
            raise ValueError("by that reply")


@pytest.mark.parametrize("published", [False, True], ids=["a call", "a publish"])
async def test_an_attempt_that_failed_on_a_reply_which_is_lost_did_not_fail(bench: Bench, published: bool) -> None:
    anew(Failing).bench = bench
    await bench.start(Echo)
    runtime = await bench.start(Failing)
    await runtime.add_subscription(TypeSubscription("steps", "diary"))
    if published:
        await bench.client.publish(Step(names=["one"], fails=[]), TopicId("steps", "d"))
        await eventually(lambda: len(Failing.starts) == 2, 8)
    else:
        await asyncio.wait_for(bench.call("one"), 8)
    assert await bench.lines(runtime) == ["one"]
