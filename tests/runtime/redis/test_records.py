"""What a turn has noted down outlives its worker, and nobody but the turn's owner adds to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId

from stagebell import Publisher, RedisRuntime, Retry, agent_options
from stagebell.errors import MessageTooLarge
from stagebell.runtime.engine.journal import record
from stagebell.testing import crash, freeze, thaw
from tests.support.agents import Ask, Doing, Note, OnAsk, OnNote, agent, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LEASE = 0.6


@agent_options(retry=Retry(first_delay=0.01, jitter=0))
class Keeping(Doing):
    """Keeps a state."""

    def __init__(self, ask: OnAsk, note: OnNote) -> None:
        super().__init__(ask, note)
        self.heard: list[str] = []

    async def save_state(self) -> dict[str, Any]:
        return {"heard": self.heard}

    async def load_state(self, state: Any) -> None:
        self.heard = list(state["heard"])


async def worker(url: str, namespace: str, note: OnNote, ask: OnAsk | None = None) -> RedisRuntime:
    async def nothing(doing: Doing, message: Ask, ctx: MessageContext) -> str:
        return "nothing"

    runtime = RedisRuntime(url, namespace=namespace, lease=LEASE, partitions=1)
    await host(runtime, "works", ask or nothing, note, topics=("work",), cls=Keeping)
    await runtime.start()
    return runtime


def kept(server: Server, namespace: str) -> list[str]:
    """The journals in the server."""
    client: Any = server.client()
    found = [key.decode() for key in client.scan_iter(f"sb:{{{namespace}:*}}:j:*", count=1000)]
    client.close()
    return found


async def test_the_next_owner_gets_the_value_of_a_worker_that_died(server: Server, namespace: str) -> None:
    seen: list[str | None] = []

    async def note(doing: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append(await record("intent", f"attempt {len(seen) + 1}"))
        if len(seen) == 1:
            await crash(victim)

    victim = await worker(server.url, namespace, note)
    async with Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(Note)
        await publisher.publish(Note(), TopicId("work", "x"))
    await eventually(lambda: kept(server, namespace), 5)
    heir = await worker(server.url, namespace, note)
    await eventually(lambda: len(seen) == 2, 10)
    assert seen == [None, "attempt 1"]
    await heir.stop_when_idle(10)
    assert kept(server, namespace) == []  # I17
    await heir.close()


async def test_a_zombie_records_nothing(server: Server, namespace: str) -> None:
    gate, entered, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    zombies: list[Any] = []
    heirs: list[str | None] = []

    async def slow(doing: Doing, message: Note, ctx: MessageContext) -> None:
        entered.set()
        await gate.wait()
        try:
            zombies.append(await record("intent", "by the zombie"))
        except BaseException as error:
            zombies.append(type(error))
            raise
        finally:
            ended.set()

    async def quick(doing: Doing, message: Note, ctx: MessageContext) -> None:
        heirs.append(await record("intent", "by the heir"))
        await asyncio.wait_for(ended.wait(), 10)
        heirs.append(await record("intent", "again"))

    zombie = await worker(server.url, namespace, slow)
    await zombie.publish_message(Note(), TopicId("work", "x"))
    await asyncio.wait_for(entered.wait(), 5)
    freeze(zombie)
    heir = await worker(server.url, namespace, quick)
    await eventually(lambda: heirs, 10)
    gate.set()
    thaw(zombie)
    await eventually(lambda: len(heirs) == 2, 10)
    assert zombies == [asyncio.CancelledError]
    assert heirs == [None, "by the heir"]
    await zombie.close()
    await heir.close()


async def test_a_failed_attempt_leaves_its_records_to_the_next(server: Server, namespace: str) -> None:
    seen: list[str | None] = []

    async def note(doing: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append(await record("intent", f"attempt {len(seen) + 1}"))
        if len(seen) == 1:
            raise ValueError("once more")

    runtime = await worker(server.url, namespace, note)
    await runtime.publish_message(Note(), TopicId("work", "x"))
    await eventually(lambda: len(seen) == 2, 5)
    assert seen == [None, "attempt 1"]
    await runtime.stop_when_idle(10)
    assert kept(server, namespace) == []
    await runtime.close()


async def test_a_turn_that_failed_leaves_no_records(server: Server, namespace: str) -> None:
    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> str:
        await record("intent", "x")
        raise ValueError("for good")

    async def nothing(doing: Doing, message: Note, ctx: MessageContext) -> None:
        pass

    runtime = await worker(server.url, namespace, nothing, ask)
    with pytest.raises(ValueError, match="for good"):
        await runtime.send_message(Ask(), agent("works"))
    await runtime.stop_when_idle(10)
    assert kept(server, namespace) == []
    await runtime.close()


async def test_a_value_may_be_as_long_as_a_message(redis_url: str, namespace: str) -> None:
    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> str:
        assert await record("n", "x" * 999) is None
        with pytest.raises(MessageTooLarge, match=r"record other.* the limit is 1,000"):
            await record("other", "ä" * 500)
        return "refused"

    runtime = RedisRuntime(redis_url, namespace=namespace, max_message_bytes=1000)
    await host(runtime, "works", ask)
    await runtime.start()
    assert await runtime.send_message(Ask(), agent("works")) == "refused"
    await runtime.close()
