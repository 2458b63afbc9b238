"""Many more agents in the server than in memory: what each costs this process, in memory and passivated."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from autogen_core import AgentId

from stagebell import RedisRuntime
from stagebell.messages.ids import partition_of
from stagebell.runtime.engine.migrations import state_form
from stagebell.runtime.redis import worker
from stagebell.runtime.redis.keys import PartitionKeys
from tests.support.agents import Ask, Counting
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

PARTITIONS = 16


@asynccontextmanager
async def counting(server: Server, namespace: str, **options: Any) -> AsyncIterator[RedisRuntime]:
    async with RedisRuntime(server.url, namespace=namespace, partitions=PARTITIONS, **options) as runtime:
        await Counting.register(runtime, "counter", Counting)
        yield runtime


def put_states(server: Server, namespace: str, agents: int) -> None:
    """As if each of them had handled one message."""
    keys = [PartitionKeys(namespace, "counter", number) for number in range(PARTITIONS)]
    form = state_form(Counting)
    state = json.dumps({"type": form.type, "version": form.version, "state": {"count": 1}})
    write = server.client().register_script(WRITE)
    for start in range(0, agents, 40_000):
        parts: list[list[str]] = [[] for _ in keys]
        for key in map(str, range(start, min(agents, start + 40_000))):
            parts[partition_of(f"counter/{key}", PARTITIONS)].append(key)
        for place, part in zip(keys, parts, strict=True):
            write(args=[state, place.ids, place.state(""), *part])


WRITE = """
for i = 4, #ARGV do
  redis.call('HSET', ARGV[3] .. ARGV[i], 'v', 1, 'd', ARGV[1])
  redis.call('SADD', ARGV[2], 'counter/' .. ARGV[i])
end
"""


async def touch(runtime: RedisRuntime, keys: Iterable[int], answer: int, at_once: int = 200) -> None:
    """Call each of them, and check that it went on from its stored state."""
    remaining = iter(keys)

    async def lane() -> None:
        for key in remaining:
            assert await runtime.send_message(Ask(), AgentId("counter", str(key))) == answer

    await asyncio.gather(*(lane() for _ in range(at_once)))


def in_memory(runtime: RedisRuntime) -> int:
    assert runtime._node is not None
    partitions = runtime._node.services.partitions.values()
    live = len(runtime._catalog.types["counter"].live)
    return max(live, sum(len(getattr(owned, "agents", ())) for owned in partitions))


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def test_twenty_thousand_agents_with_five_hundred_in_memory(server: Server, namespace: str) -> None:
    put_states(server, namespace, 20_000)
    async with counting(server, namespace, max_agents_in_memory=500) as runtime:
        await touch(runtime, random.Random(1).sample(range(20_000), 2_000), 2)
        await eventually(lambda: in_memory(runtime) <= 500, within=5)


@pytest.mark.parametrize(("most", "bytes_each"), [(10_000, 2_500), (100, 400)], ids=["in memory", "passivated"])
async def test_what_an_agent_takes(server: Server, namespace: str, tracing: None, most: int, bytes_each: int) -> None:
    async with counting(server, namespace, max_agents_in_memory=most) as runtime:
        await touch(runtime, range(200), 1, at_once=50)
        await eventually(lambda: in_memory(runtime) == min(most, 200), within=5)
        before = traced()
        await touch(runtime, range(200, 900), 1, at_once=50)
        await eventually(lambda: in_memory(runtime) == min(most, 900), within=5)
        each = (traced() - before) / 700
    assert each < bytes_each  # what is left of one that has gone are its names, in caches that have a limit


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def traced() -> int:
    worker._agent.cache_clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.torture
@pytest.mark.timeout(600)
async def test_a_million_agents_with_ten_thousand_in_memory(
    server: Server, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    put_states(server, namespace, 1_000_000)
    figures = [f"{server.kind}: a million states written in {time.monotonic() - began:.0f} s"]
    sample = random.Random(1).sample(range(1_000_000), 100_000)
    async with counting(server, namespace) as runtime:
        await touch(runtime, sample[:20_000], 2)
        await eventually(lambda: in_memory(runtime) <= 10_000, within=10)
        first, began = resident_megabytes(), time.monotonic()
        for start in range(20_000, 100_000, 20_000):
            await touch(runtime, sample[start : start + 20_000], 2)
            seconds = time.monotonic() - began
            figures.append(f"{start + 20_000:,} touched, {seconds:.0f} s, {resident_megabytes():.1f} MB resident")
        await eventually(lambda: in_memory(runtime) <= 10_000, within=10)
        last = resident_megabytes()
    with capsys.disabled():
        print("", *figures, sep="\n")
    assert last - first < 30  # 80,000 agents came and went
