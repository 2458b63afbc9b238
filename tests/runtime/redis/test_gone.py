"""A worker is known to be dead: what it held is free at once, however long its lease; nobody else loses anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from autogen_core import MessageContext

from stagebell import RedisRuntime
from stagebell.runtime.redis.gone import report_gone
from stagebell.testing import crash
from tests.support.agents import Ask, Bound, Doing, agent, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LEASE = 60.0  # longer than this test waits for anything
Start = Callable[[str], Awaitable[RedisRuntime]]


@pytest.fixture
async def start(server: Server, namespace: str) -> AsyncIterator[Start]:
    """Runtimes that say in each answer who they are."""
    started: list[RedisRuntime] = []

    async def start(name: str) -> RedisRuntime:
        async def tell(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            return name

        runtime = RedisRuntime(server.url, namespace=namespace, lease=LEASE, partitions=2)
        await host(runtime, "clerk", tell)
        await host(runtime, "bound", tell, cls=Bound)
        await runtime.start()
        started.append(runtime)
        return runtime

    yield start
    for runtime in started:
        await runtime.close()


def name_of(runtime: RedisRuntime) -> str:
    return runtime._running("name_of").client.name


async def asked(runtime: RedisRuntime, type: str, keys: int = 1) -> set[str]:
    return {await runtime.send_message(Ask(), agent(type, str(key))) for key in range(keys)}


async def test_its_partitions_and_bound_types_go_on_elsewhere(server: Server, namespace: str, start: Start) -> None:
    first, second = await start("first"), await start("second")
    await eventually(lambda: _owned(server, namespace) == {name_of(first): 1, name_of(second): 1}, 10)
    assert await asked(second, "clerk", 8) == {"first", "second"}
    assert await asked(second, "bound") == {"first"}
    dead = name_of(first)
    await crash(first)
    ended = await report_gone(server.url, None, namespace, dead, lease_ms=int(LEASE * 1000))
    assert ended >= 2, "a partition, the inbox of the process, and perhaps the events"
    async with asyncio.timeout(10):
        assert await asked(second, "clerk", 8) == {"second"}
        await eventually(lambda: name_of(second) in _holder(server, namespace), 8)
        assert await asked(second, "bound") == {"second"}


async def test_a_worker_that_lives_keeps_what_it_has(server: Server, namespace: str, start: Start) -> None:
    only = await start("only")
    assert await asked(only, "clerk", 8) == {"only"}
    assert await report_gone(server.url, None, namespace, "p-another", lease_ms=1000) == 0
    assert _owned(server, namespace) == {name_of(only): 2}
    assert await asked(only, "clerk", 8) == {"only"}


def _owned(server: Server, namespace: str) -> dict[str, int]:
    client: Any = server.client()
    found: dict[str, int] = {}
    for number in range(2):
        owner = client.hget(f"sb:{{{namespace}:clerk:{number}}}:own", "owner")
        found[(owner or b"").decode()] = found.get((owner or b"").decode(), 0) + 1
    client.close()
    return found


def _holder(server: Server, namespace: str) -> str:
    client: Any = server.client()
    value: bytes = client.hget(f"sb:{{{namespace}}}:reg", "t:bound") or b""
    client.close()
    return value.decode()
