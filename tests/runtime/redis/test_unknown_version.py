"""A message that only a newer program can read: its agent is paused, nobody else notices, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription

import stagebell.runtime.redis.worker as worker_module
from stagebell import RedisRuntime
from stagebell.messages.codec import unpack
from stagebell.messages.envelope import Envelope
from stagebell.messages.ids import turn_id
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.runtime.redis.overview import Overview
from tests.support.agents import Ask, Doing, Note
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

CREDIT = 16


class Bench:
    """Agents of type "one", all in one partition; they write down the notes that they get."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.url, self.namespace = server.url, namespace
        self.client: Any = server.client()
        self.heard: dict[str, list[int]] = {}
        self.keys = PartitionKeys(namespace, "one", 0)

    async def start(self) -> RedisRuntime:
        async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
            self.heard.setdefault(agent.id.key, []).append(message.number)

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            return "answer" if message.text != "onward" else str(await agent.call(AgentId("one", "a")))

        runtime = RedisRuntime(self.url, namespace=self.namespace, partitions=1, read_credit=CREDIT)
        await Doing.register(runtime, "one", lambda: Doing(ask, note))
        await runtime.add_subscription(TypeSubscription("t", "one"))
        await runtime.start()
        return runtime

    def from_a_newer_program(self, number: int, key: str = "a") -> str:
        """A note in another version of the wire format; its entry."""
        agent = f"one/{key}"
        envelope = {"v": 2, "id": f"new-{number}", "type": "Note", "kind": "publish", "topic": f"t/{key}"}
        text = json.dumps({**envelope, "data": {"number": number}}, separators=(",", ":"))
        fields = {"m": turn_id(f"new-{number}", agent), "a": agent, "e": text}
        return str(self.client.xadd(self.keys.inbox, fields).decode())

    async def paused(self) -> dict[str, int]:
        view = await Overview.read(self.url, self.namespace)
        return {agent: number for worker in view.workers for agent, number in worker.paused.items()}

    async def paused_no_more(self) -> bool:
        return await self.paused() == {}

    async def is_paused(self, waiting: int) -> bool:
        return await self.paused() == {"one/a": waiting}


@pytest.fixture
async def bench(server: Server, namespace: str) -> AsyncIterator[Bench]:
    bench = Bench(server, namespace)
    yield bench
    bench.client.close()


async def publish(runtime: RedisRuntime, *numbers: int, key: str = "a") -> None:
    for number in numbers:
        await runtime.publish_message(Note(number=number), TopicId("t", key))


async def test_its_agent_is_paused_and_its_neighbours_are_not(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    runtime = await bench.start()
    await publish(runtime, 1)
    bench.from_a_newer_program(2)
    await eventually(lambda: [r for r in caplog.records if "is paused here" in r.getMessage()], 5)
    await publish(runtime, *range(3, 3 * CREDIT))  # far more than the partition takes into memory
    bench.from_a_newer_program(999)
    for number in range(3 * CREDIT):
        await publish(runtime, number, key=f"n{number % 3}")
    await eventually(lambda: sum(map(len, bench.heard.values())) == 1 + 3 * CREDIT, 5)
    assert bench.heard["a"] == [1]
    assert all(numbers == sorted(numbers) for numbers in bench.heard.values())
    await eventually(lambda: bench.is_paused(3 * CREDIT - 1), 5)
    (told,) = [r for r in caplog.records if "is paused here" in r.getMessage()]
    assert (told.levelno, "one/a" in told.getMessage()) == (logging.ERROR, True)
    await runtime.stop_when_idle(timeout=5)  # what is paused does not count
    assert not bench.client.exists(bench.keys.dlq)
    assert bench.client.xlen(bench.keys.inbox) == 3 * CREDIT - 1
    await runtime.close()


async def test_a_call_from_a_turn_is_let_through(bench: Bench) -> None:
    runtime = await bench.start()
    bench.from_a_newer_program(1)
    await eventually(lambda: bench.is_paused(1), 5)
    call = runtime.send_message(Ask(text="onward"), AgentId("one", "b"))
    assert await asyncio.wait_for(call, 5) == "answer"
    await runtime.close()


def _of_the_newer_program(raw: bytes) -> Envelope:
    return unpack(raw.replace(b'"v":2', b'"v":1', 1))


async def test_a_newer_program_goes_on_where_it_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await bench.start()
    bench.from_a_newer_program(1)
    await eventually(lambda: bench.is_paused(1), 5)
    await publish(runtime, *range(2, 2 * CREDIT))
    bench.from_a_newer_program(2 * CREDIT)
    await runtime.close()
    monkeypatch.setattr(worker_module, "unpack", _of_the_newer_program)
    newer = await bench.start()
    await eventually(lambda: len(bench.heard.get("a", [])) == 2 * CREDIT, 5)
    assert bench.heard["a"] == list(range(1, 2 * CREDIT + 1))
    await eventually(lambda: not bench.client.xlen(bench.keys.inbox), 5)
    await newer.close()


async def test_its_agent_goes_on_when_an_operator_deletes_it(bench: Bench) -> None:
    runtime = await bench.start()
    entry = bench.from_a_newer_program(1)
    await eventually(lambda: bench.is_paused(1), 5)
    await publish(runtime, *range(2, 2 * CREDIT))
    bench.client.xdel(bench.keys.inbox, entry)
    await eventually(lambda: bench.heard.get("a") == list(range(2, 2 * CREDIT)), 5)
    await eventually(bench.paused_no_more, 5)
    await runtime.close()
