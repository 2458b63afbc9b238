"""What is left of nested turns that fail: what their own nested turns did, which others have seen, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import Publisher, RedisRuntime, agent_options
from stagebell.errors import DeadLettered
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.testing import crash
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class Step(BaseModel):
    """Handled by calling oneself with the rest; `fails` after that."""

    names: list[str]
    fails: list[str]


class Diary(RoutedAgent):
    """Notes what it does. Its state is the very list that it goes on with."""

    def __init__(self) -> None:
        super().__init__("a diary")
        self.lines: list[str] = []

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """Note the first name, call oneself with the others, note the end."""
        name, *rest = message.names
        self.lines.append(name)
        if rest:
            with suppress(ValueError, DeadLettered):
                await self.send_message(Step(names=rest, fails=message.fails), self.id)
        self.lines.append(f"{name} ends")
        if name in message.fails:
            raise ValueError(name)

    async def save_state(self) -> Mapping[str, Any]:
        """The lines."""
        return {"lines": self.lines}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """The lines."""
        self.lines = list(state["lines"])


@pytest.mark.parametrize(
    ("fails", "lines"),
    [
        ([], ["outer", "middle", "inner", "inner ends", "middle ends", "outer ends"]),
        (["inner"], ["outer", "middle", "middle ends", "outer ends"]),
        (["middle"], ["outer", "middle", "inner", "inner ends", "outer ends"]),
        (["inner", "middle"], ["outer", "outer ends"]),
    ],
)
async def test_a_nested_turn_that_fails(redis_url: str, namespace: str, fails: list[str], lines: list[str]) -> None:
    async with RedisRuntime(redis_url, namespace=namespace) as runtime:
        await Diary.register(runtime, "diary", Diary)
        await runtime.send_message(Step(names=["outer", "middle", "inner"], fails=fails), AgentId("diary", "d"))
        assert await runtime.agent_save_state(AgentId("diary", "d")) == {"lines": lines}


@agent_options(state_type="Diary")
class Stuck(Diary):
    """Never gets beyond the end of the turn `middle`."""

    reached: list[str] = []

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """As the others; in the middle one it waits for ever."""
        await super().on_step(message, ctx)
        if message.names[0] == "middle":
            self.reached.append("middle")
            await asyncio.Event().wait()


async def test_a_nested_turn_that_is_given_up_leaves_what_its_own_nested_turns_did(
    server: Server, namespace: str
) -> None:
    """It killed its worker four times, the turn below it did not: as if it had raised."""
    Stuck.reached.clear()
    keys, client = PartitionKeys(namespace, "diary", 0), server.client()
    victim = RedisRuntime(server.url, namespace=namespace, lease=0.5, partitions=1)
    await Stuck.register(victim, "diary", Stuck)
    await victim.start()
    async with Publisher(server.url, namespace=namespace) as publisher:
        names = ["outer", "middle", "inner"]
        call = asyncio.create_task(publisher.call(Step(names=names, fails=[]), AgentId("diary", "d"), timeout=20))
        await eventually(lambda: Stuck.reached, 5)
        await crash(victim)
        (savepoints,) = client.keys(keys.savepoints("*"))
        client.hset(keys.run, savepoints.decode().rpartition(":")[2], "4:dead")
        async with RedisRuntime(server.url, namespace=namespace) as heir:
            await Diary.register(heir, "diary", Diary)
            await call
            state = await heir.agent_save_state(AgentId("diary", "d"))
    assert state == {"lines": ["outer", "middle", "inner", "inner ends", "outer ends"]}
    (letter,) = client.xrange(keys.dlq)
    assert letter[1][b"reason"] == b"crashed: 4 times its worker died, or lost its lease, while it ran"
    assert letter[1][b"attempts"] == b"4"
    assert not client.keys(keys.savepoints("*"))
    assert not client.exists(keys.run)
    client.close()
    await victim.close()


async def test_a_turn_that_waits_no_more_ends_after_the_nested_turn_above_it(
    redis_url: str, namespace: str, server: Server
) -> None:
    """It gives up its call at the very moment at which what the callee has called back returns."""
    gate = asyncio.Event()

    class Impatient(Diary):
        @message_handler
        async def on_step(self, message: Step, ctx: MessageContext) -> None:
            self.lines.append(message.names[0])
            if message.names[0] == "nested":
                entered.set()
                await gate.wait()
                self.lines.append("nested ends")
                return
            call = asyncio.ensure_future(self.send_message(message, AgentId("back", "b")))
            await entered.wait()
            call.cancel()
            gate.set()

    class Back(RoutedAgent):
        @message_handler
        async def on_step(self, message: Step, ctx: MessageContext) -> None:
            await self.send_message(Step(names=["nested"], fails=[]), AgentId("diary", "d"))

    entered = asyncio.Event()
    async with RedisRuntime(redis_url, namespace=namespace) as runtime:
        await Impatient.register(runtime, "diary", Impatient)
        await Back.register(runtime, "back", lambda: Back("calls back"))
        await runtime.send_message(Step(names=["outer"], fails=[]), AgentId("diary", "d"))
        assert await runtime.agent_save_state(AgentId("diary", "d")) == {"lines": ["outer", "nested", "nested ends"]}
        client: Any = server.client()
        assert not list(client.scan_iter(f"sb:{{{namespace}:*:sp:*", count=1000))


async def test_a_turn_that_gives_up_a_call_goes_on_when_what_was_called_back_has_ended(
    redis_url: str, namespace: str
) -> None:
    """A nested turn that fails puts back what it has found: nothing of the turn below may come in between."""

    class Impatient(Diary):
        @message_handler
        async def on_step(self, message: Step, ctx: MessageContext) -> None:
            self.lines.append(message.names[0])
            if message.names[0] == "nested":
                entered.set()
                await asyncio.Event().wait()
            call = asyncio.ensure_future(self.send_message(message, AgentId("back", "b")))
            await entered.wait()
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            self.lines.append("gave up")

    class Back(RoutedAgent):
        @message_handler
        async def on_step(self, message: Step, ctx: MessageContext) -> None:
            await self.send_message(Step(names=["nested"], fails=[]), AgentId("diary", "d"))

    entered = asyncio.Event()
    async with RedisRuntime(redis_url, namespace=namespace) as runtime:
        await Impatient.register(runtime, "diary", Impatient)
        await Back.register(runtime, "back", lambda: Back("calls back"))
        await runtime.send_message(Step(names=["outer"], fails=[]), AgentId("diary", "d"))
        assert await runtime.agent_save_state(AgentId("diary", "d")) == {"lines": ["outer", "gave up"]}
