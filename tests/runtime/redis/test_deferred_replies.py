"""Replies that come later, over a server: on other workers, after restarts, and with callers that look for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stagebell import Publisher, RedisRuntime
from stagebell.errors import DeadlineExceeded, Undeliverable
from stagebell.runtime.redis import upkeep
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.testing import crash
from tests.support.agents import Answer, Ask, Doing, agent, host
from tests.support.desk import BoundDesk, Desk, Release, asked, opened, release
from tests.support.servers import Server, available_kinds
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@contextlib.asynccontextmanager
async def running(url: str, namespace: str, cls: type[Desk] | None = Desk, **options: Any) -> AsyncIterator[Any]:
    runtime = RedisRuntime(url, namespace=namespace, lease=0.6, **options)
    if cls is not None:
        await cls.register(runtime, "desk", cls)
    async with runtime:
        yield runtime


def marks(server: Server, namespace: str) -> int:
    client: Any = server.client()
    count = sum(client.hlen(PartitionKeys(namespace, "desk", number).later) for number in range(16))
    client.close()
    return int(count)


async def test_another_worker_answers(server: Server, namespace: str) -> None:
    async with Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(Answer)
        async with running(server.url, namespace):
            call = asyncio.create_task(publisher.call(Ask(text="a"), agent("desk")))
            await eventually(lambda: marks(server, namespace) == 1)
        async with running(server.url, namespace):
            await publisher.call(Release(text="a", answer="elsewhere"), agent("desk"))
            assert (await asyncio.wait_for(call, 5)).text == "elsewhere"
            assert marks(server, namespace) == 0


async def test_a_caller_goes_on_waiting_however_often_it_looks(
    server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_OLD", 0.0)
    monkeypatch.setattr(upkeep, "_DEFERRED", 0.05)
    async with Publisher(server.url, namespace=namespace, undeliverable_after=0.3) as publisher:
        publisher.register(Answer)
        watch = publisher._client.calls_watch
        async with running(server.url, namespace):
            call = asyncio.create_task(publisher.call(Ask(text="a"), agent("desk")))
            await eventually(lambda: watch._looked, 5)
        # Nobody hosts the type now: a call that was handled is not undeliverable.
        moments: set[float] = set()
        await eventually(lambda: moments.update(watch._looked.values()) or len(moments) > 3 or call.done(), 8)
        assert not call.done()
        async with running(server.url, namespace):
            await publisher.call(Release(text="a", answer="at last"), agent("desk"))
            assert (await asyncio.wait_for(call, 5)).text == "at last"


async def test_the_server_is_restarted_while_a_reply_is_put_off(namespace: str) -> None:
    kind = available_kinds()[0]
    with Server(kind, args=("--appendonly", "yes", "--appendfsync", "always")) as server:
        async with running(server.url, namespace) as runtime:
            call = await asked(runtime, "a")
            await asyncio.to_thread(server.restart, kill=True)
            assert await asyncio.wait_for(release(runtime, "a", answer="after it"), 15) == "released"
            assert (await asyncio.wait_for(call, 10)).text == "after it"
            assert marks(server, namespace) == 0


async def test_a_caller_whose_worker_died_gets_the_reply_when_its_turn_runs_again(
    server: Server, namespace: str
) -> None:
    async def ask(agent: Doing, message: Ask, ctx: Any) -> Any:
        return (await agent.call("desk", message.text)).text

    async with running(server.url, namespace) as desk:
        first = RedisRuntime(server.url, namespace=namespace, lease=0.6, partitions=1, stop_grace=0.0)
        await host(first, "asker", ask)
        await first.start()
        call = asyncio.create_task(desk.send_message(Ask(text="a"), agent("asker")))
        await eventually(lambda: marks(server, namespace) == 1, 5)
        await first.close()  # its turn was open: nothing of it was committed
        second = RedisRuntime(server.url, namespace=namespace, lease=0.6)
        await host(second, "asker", ask)
        await second.start()
        assert list(await opened(desk)) == ["a"]
        await release(desk, "a", answer="still there")
        assert await asyncio.wait_for(call, 10) == "still there"
        await second.close()


async def test_an_agent_bound_to_another_process_answers_later(server: Server, namespace: str) -> None:
    async with running(server.url, namespace, BoundDesk), Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(Answer)
        calls = [asyncio.create_task(publisher.call(Ask(text=text), agent("desk"))) for text in ("a", "b")]
        await publisher.call(Ask(text="at once"), agent("desk"))
        await publisher.call(Release(text="a", answer="yes"), agent("desk"))
        await publisher.call(Release(text="b", error="no"), agent("desk"))
        assert (await asyncio.wait_for(calls[0], 5)).text == "yes"
        with pytest.raises(ValueError, match="no"):
            await asyncio.wait_for(calls[1], 5)


async def test_what_a_process_owed_ends_with_it(server: Server, namespace: str) -> None:
    async with running(server.url, namespace, None, undeliverable_after=0.5) as other:
        await Desk.register(other, "unused", Desk)
        async with running(server.url, namespace, BoundDesk):
            call = asyncio.create_task(other.send_message(Ask(text="a"), agent("desk")))
            assert (await other.send_message(Ask(text="at once"), agent("desk"))).text == "here"
        with pytest.raises(Undeliverable):
            await asyncio.wait_for(call, 10)


@pytest.mark.parametrize("moves", [False, True], ids=["at its worker", "at the next owner"])
async def test_what_nobody_answers_by_its_deadline_leaves_nothing(server: Server, namespace: str, moves: bool) -> None:
    async with Publisher(server.url, namespace=namespace) as publisher, running(server.url, namespace) as first:
        publisher.register(Answer)
        call = asyncio.create_task(publisher.call(Ask(text="a"), agent("desk"), timeout=0.5))
        await eventually(lambda: marks(server, namespace) == 1, 5)
        if moves:
            await crash(first)
        async with running(server.url, namespace):
            with pytest.raises(DeadlineExceeded):
                await call
            await eventually(lambda: marks(server, namespace) == 0, 5)
            # Too late, and no error, as long as anybody may answer.
            await publisher.call(Release(text="a", answer="too late"), agent("desk"))
