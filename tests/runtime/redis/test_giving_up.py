"""Calls given up, and turns cancelled, at bad moments: what nested turns did is neither lost nor done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler

from stagebell import Publisher, RedisRuntime, agent_options
from stagebell.testing import crash, freeze
from tests.failure.view import View
from tests.runtime.redis.test_savepoints import Diary, Step
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

DIARY, BACK, FAR = AgentId("diary", "d"), AgentId("back", "b"), AgentId("far", "f")


class Back(RoutedAgent):
    """Calls whoever called it."""

    def __init__(self) -> None:
        super().__init__("calls back")

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """Call back with the rest."""
        assert ctx.sender is not None
        await self.send_message(Step(names=message.names[1:], fails=[]), ctx.sender)


class Waits(RoutedAgent):
    """Waits until it is cancelled."""

    entered: asyncio.Event
    cancelled: asyncio.Event

    def __init__(self) -> None:
        super().__init__("waits")

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


class Bench:
    """Runtimes of one namespace, a client, and what is in the server."""

    def __init__(self, server: Server, namespace: str, client: Publisher) -> None:
        self.client = client
        self.view = View(server.client(), namespace)
        self._url, self._namespace = server.url, namespace
        self._made: list[RedisRuntime] = []

    async def start(self, *classes: type[RoutedAgent], lease: float = 0.5, **options: Any) -> RedisRuntime:
        """A runtime that hosts these classes; one that is neither `Back` nor a kind of `Waits` as the diary."""
        runtime = RedisRuntime(self._url, namespace=self._namespace, partitions=1, lease=lease, **options)
        for cls in classes:
            name = "back" if cls is Back else "far" if issubclass(cls, Waits) else "diary"
            await cls.register(runtime, name, cls)
        await runtime.start()
        self._made.append(runtime)
        return runtime

    def call(self, *names: str) -> asyncio.Task[Any]:
        """Call the diary with these steps."""
        return asyncio.create_task(self.client.call(Step(names=list(names), fails=[]), DIARY, timeout=20))

    def find(self, name: str) -> tuple[str, str, str]:
        """The inbox, entry id and turn id of the message whose first step has this name."""
        text = f'"names":["{name}"'.encode()
        (found,) = (
            (inbox, entry_id.decode(), fields[b"m"].decode())
            for inbox in self.view.keys(":in")
            for entry_id, fields in self.view.client.xrange(inbox)
            if text in fields[b"e"].replace(b" ", b"")
        )
        return found

    def wish(self, name: str) -> None:
        """Ask for the end of that message."""
        inbox, entry_id, turn_id = self.find(name)
        self.view.client.xadd(f"{inbox[:-2]}ctl", {"m": turn_id, "i": entry_id, "w": "cancel"})

    def journals(self) -> list[str]:
        """The keys of all journals."""
        return [key for key in self.view.keys("") if "}:j:" in key]

    def count_of_failures(self) -> int:
        """How many attempts have failed and are counted."""
        return sum(bool(self.view.client.hexists(key, "#f")) for key in self.journals())

    def lose_replies(self) -> None:
        """Let the server be as it was before it had any reply."""
        for key in self.journals():
            self.view.client.hset(key, "#r", 0)

    async def lines(self, runtime: RedisRuntime) -> list[str]:
        """What the diary says, once all is at rest."""
        await eventually(lambda: self.view.backlog() == 0, within=8)
        await eventually(lambda: not self.view.left_behind(), within=5)
        lines: list[str] = (await runtime.agent_save_state(DIARY))["lines"]
        return lines

    async def close(self) -> None:
        await asyncio.gather(*(runtime.close() for runtime in self._made))
        self.view.client.close()


@pytest.fixture
async def bench(server: Server, namespace: str) -> AsyncIterator[Bench]:
    async with Publisher(server.url, namespace=namespace) as client:
        bench = Bench(server, namespace, client)
        yield bench
        await bench.close()


@agent_options(state_type="Diary")
class Impatient(Diary):
    """Calls itself back by way of another, and may have no patience at all; then, perhaps, calls it again."""

    patience = 20.0
    entered: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.lines.append(message.names[0])
        if message.names[0] == "outer":
            with suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    await self.send_message(Step(names=["back", "inner"], fails=[]), BACK)
            self.lines.append("goes on")
            if self.patience:
                self.entered.set()
                await asyncio.Event().wait()
            if "again" in message.names:
                await self.send_message(Step(names=["back", "again"], fails=[]), BACK)


@agent_options(state_type="Diary")
class Finishing(Diary):
    """The same, but it ends."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.lines.append(message.names[0])
        if message.names[0] == "outer":
            await self.send_message(Step(names=["back", "inner"], fails=[]), BACK)
            self.lines.append("goes on")


@agent_options(state_type="Diary")
class InAHurry(Impatient):
    """At the next owner."""

    patience = 0.0


@pytest.mark.parametrize("more", [[], ["again"]], ids=["alone", "another call"])
async def test_a_call_that_is_given_up_before_the_server_has_answered(bench: Bench, more: list[str]) -> None:
    """The turn ran before, and a nested turn has left a savepoint: what it does next comes after that."""
    Impatient.entered = asyncio.Event()
    victim = await bench.start(Impatient, Back)
    call = bench.call("outer", *more)
    await asyncio.wait_for(Impatient.entered.wait(), 8)
    await crash(victim)
    heir = await bench.start(InAHurry, Back)
    await asyncio.wait_for(call, 10)
    assert await bench.lines(heir) == ["outer", "inner", "goes on", *more]


async def test_what_had_begun_runs_again_before_a_message_that_came_earlier(bench: Bench) -> None:
    """A call may pass a publish. Its savepoint, loaded after the publish has changed the state, would undo that."""
    Impatient.entered = asyncio.Event()
    victim = await bench.start(Impatient, Back)
    call = bench.call("outer")
    await asyncio.wait_for(Impatient.entered.wait(), 8)
    await crash(victim)
    (inbox,) = [key for key in bench.view.keys(":in") if bench.view.client.xlen(key)]
    ((entry_id, begun),) = bench.view.client.xrange(inbox)
    told = '{"v":1,"id":"x","type":"Step","kind":"send","to":"diary/d","data":{"names":["earlier"],"fails":[]}}'
    bench.view.client.delete(inbox)
    bench.view.client.xadd(inbox, {"m": "x", "a": "diary/d", "e": told}, id="1-0")
    bench.view.client.xadd(inbox, begun, id=entry_id)
    heir = await bench.start(Finishing, Back)
    await asyncio.wait_for(call, 10)
    assert await bench.lines(heir) == ["outer", "inner", "goes on", "earlier"]


@agent_options(state_type="Diary")
class Stuck(Diary):
    """Never gets beyond the end of the turn `middle`."""

    entered: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """As the others; in the middle one it waits for ever."""
        await super().on_step(message, ctx)
        if message.names[0] == "middle":
            self.entered.set()
            await asyncio.Event().wait()


@agent_options(state_type="Diary")
class Calm(Diary):
    """Goes on when its call was cancelled."""

    starts: list[str]

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.starts.append(message.names[0])
        with suppress(asyncio.CancelledError):
            await super().on_step(message, ctx)
            return
        self.lines.append("goes on")


async def test_a_nested_turn_that_is_cancelled_at_the_next_owner_leaves_what_its_own_nested_turns_did(
    bench: Bench,
) -> None:
    """To the turn below it, which runs again there: not as the state that this turn begins with."""
    Stuck.entered = asyncio.Event()
    victim = await bench.start(Stuck)
    call = bench.call("outer", "middle", "inner")
    await asyncio.wait_for(Stuck.entered.wait(), 8)
    freeze(victim)
    bench.wish("middle")
    await crash(victim)
    Calm.starts = []
    heir = await bench.start(Calm)
    await asyncio.wait_for(call, 10)
    assert Calm.starts == ["outer"]
    assert await bench.lines(heir) == ["outer", "middle", "inner", "inner ends", "goes on"]


@agent_options(state_type="Diary")
class Endless(Diary):
    """Never gets beyond the end of the turn `outer`."""

    entered: asyncio.Event

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """As the others; in the outer one it waits for ever."""
        await super().on_step(message, ctx)
        if message.names[0] == "outer":
            self.entered.set()
            await asyncio.Event().wait()


async def test_a_message_that_is_cancelled_at_the_next_owner_ends_before_its_agent_is_loaded_for_others(
    bench: Bench,
) -> None:
    """I5: what its nested turns have left is the state of those, and counts as a version of it."""
    Endless.entered = asyncio.Event()
    victim = await bench.start(Endless)
    cancelled = bench.call("outer", "inner")
    await asyncio.wait_for(Endless.entered.wait(), 8)
    freeze(victim)
    bench.wish("outer")
    await crash(victim)
    others = [bench.call(name) for name in ("one", "two", "three")]
    await eventually(lambda: bench.view.backlog() == 4, within=5)
    heir = await bench.start(Diary)
    await asyncio.wait_for(asyncio.gather(*others), 10)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert [line for line in await bench.lines(heir) if "ends" not in line] == ["outer", "inner", "one", "two", "three"]


@agent_options(state_type="Diary")
class FarAway(Diary):
    """Calls itself, and then one that is far away."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.lines.append(message.names[0])
        nested = message.names[0] == "nested"
        await self.send_message(Step(names=["far" if nested else "nested"], fails=[]), FAR if nested else self.id)


@agent_options(state_type="Diary")
class Patient(Diary):
    """Waits for the end of that."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        await Waits.cancelled.wait()
        self.lines.append("goes on")


async def test_the_calls_of_a_cancelled_message_end_before_it_can_take_its_place(bench: Bench) -> None:
    """What it waits for may wait for one of them."""
    Waits.entered, Waits.cancelled = asyncio.Event(), asyncio.Event()
    await bench.start(Waits)
    victim = await bench.start(FarAway)
    call = bench.call("outer")
    await asyncio.wait_for(Waits.entered.wait(), 8)
    freeze(victim)
    bench.wish("nested")
    await crash(victim)
    heir = await bench.start(Patient)
    await asyncio.wait_for(call, 10)
    assert await bench.lines(heir) == ["goes on"]


@agent_options(state_type="Diary")
class Held(Diary):
    """Its nested turn waits for ever, and it goes on when that is cancelled."""

    entered: asyncio.Event
    starts: list[str]

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        self.lines.append(message.names[0])
        self.starts.append(message.names[0])
        if message.names[0] == "nested":
            self.entered.set()
            await asyncio.Event().wait()
        with suppress(asyncio.CancelledError):
            await self.send_message(Step(names=["back", "nested"], fails=[]), BACK)
        self.lines.append("goes on")


async def test_a_nested_turn_that_is_cancelled_while_its_worker_stops_spoils_nothing_below(bench: Bench) -> None:
    Held.entered, Held.starts = asyncio.Event(), []
    far = await bench.start(Back, lease=10.0)
    old = await bench.start(Held, lease=10.0, stop_grace=20.0)
    call = bench.call("outer")
    await asyncio.wait_for(Held.entered.wait(), 8)
    new = await bench.start(Held, lease=10.0)
    closing = asyncio.create_task(old.close())
    await eventually(lambda: bench.view.keys("}:hold"), 8)
    bench.wish("nested")
    await asyncio.wait_for(call, 10)
    await asyncio.wait_for(closing, 10)
    assert await bench.lines(new) == ["outer", "goes on"]
    assert Held.starts == ["outer", "nested"]  # the turn below has gone on where it was
    assert far is not new


class Forgetful(RoutedAgent):
    """Keeps no state, and leaves a task behind that awaits a call."""

    entered: asyncio.Event
    gate: asyncio.Event
    left: list[asyncio.Future[Any]] = []

    def __init__(self) -> None:
        super().__init__("forgetful")

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """The handler."""
        if message.names[0] == "nested":
            self.entered.set()
            await self.gate.wait()
        else:
            self.left.append(asyncio.ensure_future(self.send_message(Step(names=["back", "nested"], fails=[]), BACK)))
            await self.entered.wait()


async def test_what_is_nested_in_a_turn_that_has_ended_leaves_nothing_with_it(bench: Bench) -> None:
    Forgetful.entered = asyncio.Event()
    Forgetful.gate = asyncio.Event()
    Forgetful.left.clear()
    await bench.start(Forgetful, Back)
    await asyncio.wait_for(bench.call("outer"), 8)
    Forgetful.gate.set()
    await asyncio.wait_for(Forgetful.left[0], 8)
    await eventually(lambda: bench.view.backlog() == 0, within=8)
    await eventually(lambda: not bench.view.left_behind(), within=5)
