"""Agents that save state leave memory when nobody needs them, come back with their state, and are closed once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from autogen_core import AgentId, AgentInstantiationContext, MessageContext, RoutedAgent, message_handler

from stagebell import RedisRuntime, agent_options
from stagebell.runtime.engine.snapshots import save_live
from tests.support.agents import Answer, Ask, Doing, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class Clerk(RoutedAgent):
    """Counts, and tells its class what becomes of its instances."""

    def __init__(self, office: Office) -> None:
        super().__init__("counts")
        self.office = office
        self.count = 0
        self.closed = 0
        office.made.append(self)

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> int:
        assert not self.closed
        self.count += 1
        if message.text == "fail":
            raise ValueError("as asked")
        if message.text == "wait":
            self.office.waiting.set()
            with suppress(asyncio.CancelledError):
                await self.office.go_on.wait()
            assert not self.closed
        return self.count

    @message_handler
    async def on_answer(self, message: Answer, ctx: MessageContext) -> Any:
        return await self.send_message(Ask(), AgentId(*message.text.split("/")))

    async def save_state(self) -> Mapping[str, Any]:
        return {"count": self.count}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        if self.office.refuses_to_load:
            raise ValueError("cannot be loaded")
        self.count = state["count"]

    async def close(self) -> None:
        self.closed += 1
        await self.office.while_closing(self)


async def _at_once(clerk: Clerk) -> None:
    return None


class Office:
    """The instances of a test, in the order in which they were made."""

    def __init__(self) -> None:
        self.made: list[Clerk] = []
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.refuses_to_load = False
        self.while_closing: Callable[[Clerk], Awaitable[None]] = _at_once

    def closed(self) -> list[tuple[str, int]]:
        return [(clerk.id.key, clerk.closed) for clerk in self.made]

    @asynccontextmanager
    async def runtime(self, server: Server, namespace: str, **options: Any) -> AsyncIterator[RedisRuntime]:
        async with RedisRuntime(server.url, namespace=namespace, **options) as runtime:
            await Clerk.register(runtime, "clerk", lambda: Clerk(self))
            yield runtime


@pytest.fixture
def office() -> Office:
    return Office()


def clerk(key: str = "a") -> AgentId:
    return AgentId("clerk", key)


def kept(runtime: RedisRuntime) -> tuple[set[str], set[str]]:
    """The keys of the agents of which anything is kept: in the catalogue, and in the partitions."""
    assert runtime._node is not None
    partitions = runtime._node.services.partitions.values()
    live = set(runtime._catalog.types["clerk"].live)
    return live, {key for owned in partitions for key in getattr(owned, "agents", ())}


async def test_those_not_used_for_the_longest_time_leave_when_others_come(
    server: Server, namespace: str, office: Office
) -> None:
    async with office.runtime(server, namespace, max_agents_in_memory=2) as runtime:
        for key in ("a", "b", "a", "c"):
            await runtime.send_message(Ask(), clerk(key))
        await eventually(lambda: kept(runtime) == ({"a", "c"}, {"a", "c"}))
        assert office.closed() == [("a", 0), ("b", 1), ("c", 0)]
        assert await runtime.send_message(Ask(), clerk("b")) == 2  # it comes back with its state
        assert await runtime.save_state() == {"clerk/a": {"count": 2}, "clerk/b": {"count": 2}, "clerk/c": {"count": 1}}
    assert office.closed() == [("a", 1), ("b", 1), ("c", 1), ("b", 1)]


async def test_an_idle_agent_leaves_after_a_while_and_nothing_is_kept_of_it(
    server: Server, namespace: str, office: Office
) -> None:
    async with office.runtime(server, namespace, passivate_after=0.2) as runtime:
        await runtime.send_message(Ask(), clerk())
        await eventually(lambda: kept(runtime) == (set(), set()), within=5)
        assert office.closed() == [("a", 1)]
        assert await runtime.send_message(Ask(), clerk()) == 2
    assert office.closed() == [("a", 1), ("a", 1)]


async def test_an_agent_that_saves_no_state_stays(server: Server, namespace: str, office: Office) -> None:
    async with office.runtime(server, namespace, passivate_after=0.1, max_agents_in_memory=1) as runtime:
        await host(runtime, "forgetful", echo)
        await runtime.send_message(Ask(), AgentId("forgetful", "a"))
        first = await runtime.try_get_underlying_agent_instance(AgentId("forgetful", "a"), Doing)
        for key in ("a", "b"):
            await runtime.send_message(Ask(), clerk(key))
        await eventually(lambda: office.closed() == [("a", 1), ("b", 1)], within=5)
        assert await runtime.try_get_underlying_agent_instance(AgentId("forgetful", "a"), Doing) is first
        assert not first.closed


@agent_options(concurrency="interleaved", stateless=True)
class Passing(RoutedAgent):
    """Remembers nothing that matters."""

    def __init__(self, made: list[Passing]) -> None:
        super().__init__("passes on")
        self.closed = 0
        made.append(self)

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> int:
        return self.closed

    async def close(self) -> None:
        self.closed += 1


async def test_a_stateless_agent_leaves_and_moves_and_nobody_is_warned(
    server: Server, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Passing] = []
    options: dict[str, Any] = {"namespace": namespace, "passivate_after": 0.1}
    async with RedisRuntime(server.url, **options) as runtime:
        await Passing.register(runtime, "passing", lambda: Passing(made))
        for _ in range(2):
            assert await runtime.send_message(Ask(), AgentId("passing", "a")) == 0
            await eventually(lambda: [each.closed for each in made] == [1] * len(made), within=5)
    assert len(made) == 2
    assert "save_state" not in caplog.text


async def test_a_busy_agent_stays_and_leaves_later(server: Server, namespace: str, office: Office) -> None:
    async with office.runtime(server, namespace, max_agents_in_memory=1) as runtime:
        slow = asyncio.create_task(runtime.send_message(Ask(text="wait"), clerk("slow")))
        await office.waiting.wait()
        await runtime.send_message(Ask(), clerk("b"))
        assert office.made[0].closed == 0
        office.go_on.set()
        assert await slow == 1
        await eventually(lambda: sum(each.closed for each in office.made) == 1, within=5)


async def test_a_message_that_comes_while_an_agent_closes_waits_and_meets_a_new_instance(
    server: Server, namespace: str, office: Office
) -> None:
    closing, close = asyncio.Event(), asyncio.Event()

    async def slowly(_: Clerk) -> None:
        closing.set()
        await close.wait()

    async with office.runtime(server, namespace, passivate_after=0.1) as runtime:
        await runtime.send_message(Ask(), clerk())
        office.while_closing = slowly
        await closing.wait()
        calls = [asyncio.create_task(runtime.send_message(Ask(), clerk())) for _ in range(3)]
        await eventually(lambda: runtime._catalog.types["clerk"].live["a"].top is not None)
        assert len(office.made) == 1
        office.while_closing = _at_once
        close.set()
        assert await asyncio.gather(*calls) == [2, 3, 4]
    assert office.closed() == [("a", 1), ("a", 1)]


async def test_what_an_agent_sends_while_it_closes_leaves_at_once(
    server: Server, namespace: str, office: Office
) -> None:
    """It is no part of the turn for which the agent had to leave."""

    async def tell(leaving: Clerk) -> None:
        if leaving.id.key == "a":
            await leaving.send_message(Ask(), clerk("told"))

    office.while_closing = tell
    async with office.runtime(server, namespace, max_agents_in_memory=1) as runtime:
        await runtime.send_message(Ask(), clerk("a"))
        with pytest.raises(ValueError, match="as asked"):
            await runtime.send_message(Ask(text="fail"), clerk("b"))
        await eventually(lambda: ("a", 1) in office.closed())
        assert await runtime.send_message(Ask(), clerk("told")) == 2


async def test_an_agent_that_cannot_be_closed_leaves_all_the_same(
    server: Server, namespace: str, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    async def not_at_all(_: Clerk) -> None:
        raise OSError("stuck")

    async with office.runtime(server, namespace, max_agents_in_memory=1) as runtime:
        office.while_closing = not_at_all
        await runtime.send_message(Ask(), clerk("a"))
        await runtime.send_message(Ask(), clerk("b"))
        await eventually(lambda: office.made[0].closed == 1)
        assert await runtime.send_message(Ask(), clerk("a")) == 2
        assert "clerk/a could not be closed" in caplog.text
        office.while_closing = _at_once


# -- the other ways to leave


async def test_an_instance_whose_turn_failed_is_closed_after_the_turn(
    server: Server, namespace: str, office: Office
) -> None:
    async with office.runtime(server, namespace) as runtime:
        await runtime.send_message(Ask(), clerk())
        with pytest.raises(ValueError, match="as asked"):
            await runtime.send_message(Ask(text="fail"), clerk())
        assert await runtime.send_message(Ask(), clerk()) == 2
        assert office.closed() == [("a", 1), ("a", 0)]
    assert office.closed() == [("a", 1), ("a", 1)]


async def test_an_instance_that_could_not_be_loaded_is_closed(server: Server, namespace: str, office: Office) -> None:
    async with office.runtime(server, namespace, max_agents_in_memory=1) as runtime:
        for key in ("a", "b"):
            await runtime.send_message(Ask(), clerk(key))
        office.refuses_to_load = True
        with pytest.raises(ValueError, match="cannot be loaded"):
            await runtime.send_message(Ask(), clerk("a"))
        assert office.made[-1].closed == 1
        office.refuses_to_load = False
        assert await runtime.send_message(Ask(), clerk("a")) == 2
    assert all(each.closed == 1 for each in office.made)


async def test_nothing_is_kept_of_agents_that_cannot_be_made(server: Server, namespace: str, office: Office) -> None:
    def never() -> Clerk:
        raise LookupError(AgentInstantiationContext.current_agent_id().key)

    async with RedisRuntime(server.url, namespace=namespace) as runtime:
        await Clerk.register(runtime, "clerk", never)
        for key in ("a", "b"):
            with pytest.raises(LookupError):
                await runtime.send_message(Ask(), clerk(key))
        await eventually(lambda: kept(runtime) == (set(), set()), within=5)


async def test_agents_of_a_lost_partition_are_closed_those_at_work_after_their_turn(
    server: Server, namespace: str, office: Office
) -> None:
    async with office.runtime(server, namespace, partitions=1, lease=0.6, cancel_grace=30.0) as runtime:
        await runtime.send_message(Ask(), clerk("idle"))
        slow = asyncio.create_task(runtime.send_message(Ask(text="wait"), clerk("slow")))
        await office.waiting.wait()
        assert runtime._node is not None
        (partition,) = (p for p in runtime._node.services.partitions.values() if ":clerk:" in p.keys.tag)
        runtime._node.services.on_lost(partition)
        await eventually(lambda: office.closed() == [("idle", 1), ("slow", 0)])
        office.go_on.set()
        assert await slow == 1  # the message ran again, from the stored state
        await eventually(lambda: office.closed()[:2] == [("idle", 1), ("slow", 1)])
        assert await runtime.send_message(Ask(), clerk("idle")) == 2
    assert all(each.closed == 1 for each in office.made)


async def test_agents_that_are_handed_over_are_closed_before_others_run_them(
    server: Server, namespace: str, office: Office
) -> None:
    other = Office()
    async with office.runtime(server, namespace, partitions=2) as runtime:
        keys = [str(number) for number in range(8)]
        for key in keys:
            await runtime.send_message(Ask(), clerk(key))
        async with other.runtime(server, namespace) as second:
            await eventually(lambda: sum(":clerk:" in tag for tag in second._node.services.partitions) == 1, within=8)
            for key in keys:
                assert await runtime.send_message(Ask(), clerk(key)) == 2
            moved = {each.id.key for each in other.made}
            assert moved
            assert all(each.closed == 1 for each in office.made if each.id.key in moved)
    assert all(each.closed == 1 for each in [*office.made, *other.made])


async def test_agents_of_a_runtime_that_is_started_again_are_closed_and_loaded_anew(
    server: Server, namespace: str, office: Office
) -> None:
    async with office.runtime(server, namespace) as runtime:
        await runtime.send_message(Ask(), clerk())
        await runtime.stop()
        assert office.closed() == [("a", 0)]
        await runtime.start()
        assert await runtime.send_message(Ask(), clerk()) == 2
        assert office.closed() == [("a", 1), ("a", 0)]
    assert office.closed() == [("a", 1), ("a", 1)]


async def test_closing_the_runtime_waits_for_agents_that_are_closing(
    server: Server, namespace: str, office: Office
) -> None:
    ended: list[str] = []

    async def slowly(leaving: Clerk) -> None:
        for _ in range(20):
            await asyncio.sleep(0.01)
        ended.append(leaving.id.key)

    office.while_closing = slowly
    async with office.runtime(server, namespace, max_agents_in_memory=1) as runtime:
        for key in ("a", "b"):
            await runtime.send_message(Ask(), clerk(key))
        assert await save_live(runtime._catalog) == {"clerk/b": {"count": 1}}
    assert sorted(ended) == ["a", "b"]
