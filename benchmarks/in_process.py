"""In one process: ours, AutoGen's `SingleThreadedAgentRuntime` and the floor, in interleaved rounds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Protocol

from autogen_core import AgentId, AgentRuntime, SingleThreadedAgentRuntime, TopicId

from benchmarks import floors
from benchmarks.contenders import AUTOGEN, LOCAL, QUEUE
from benchmarks.measures import CALL, CALL_IN_FLIGHT, PUBLISH
from benchmarks.samples import Samples
from benchmarks.scenarios.agents import Deliveries, register, type_name
from benchmarks.scenarios.messages import Order, Tick

WIDTH = 100
"""Calls in flight, each to an agent of its own."""

SPEED = {AUTOGEN: 1, LOCAL: 10, QUEUE: 10}
"""How many times more operations a fast contender makes, so that its sample is long enough to time."""


class InProcessRuntime(AgentRuntime, Protocol):
    """What both runtimes of one process have beyond the `AgentRuntime` protocol."""

    def start(self) -> None: ...

    async def stop_when_idle(self) -> None: ...

    async def close(self) -> None: ...


MakeRuntime = Callable[[], InProcessRuntime]
Sample = Callable[[int], Awaitable[float]]


def make_autogen() -> InProcessRuntime:
    return SingleThreadedAgentRuntime()


def make_local() -> InProcessRuntime:
    from stagebell import LocalRuntime

    return LocalRuntime()


RUNTIMES: dict[str, MakeRuntime] = {LOCAL: make_local, AUTOGEN: make_autogen}


async def calls(make: MakeRuntime, count: int) -> float:
    """Seconds for one call and its reply, one at a time."""
    runtime = make()
    await register(runtime, Deliveries(), types=1)
    runtime.start()
    agent, message = AgentId(type_name(0), "0"), Order(number=1)
    await runtime.send_message(message, agent)
    start = perf_counter()
    for _ in range(count):
        await runtime.send_message(message, agent)
    elapsed = perf_counter() - start
    await runtime.stop_when_idle()
    await runtime.close()
    return elapsed / count


async def calls_in_flight(make: MakeRuntime, count: int) -> float:
    """Seconds for one call with 100 calls to 100 agents in flight."""
    runtime = make()
    await register(runtime, Deliveries(), types=1)
    runtime.start()
    agents, message = [AgentId(type_name(0), str(number)) for number in range(WIDTH)], Order(number=1)
    await asyncio.gather(*(runtime.send_message(message, agent) for agent in agents))
    start = perf_counter()
    for _ in range(count // WIDTH):
        await asyncio.gather(*(runtime.send_message(message, agent) for agent in agents))
    elapsed = perf_counter() - start
    await runtime.stop_when_idle()
    await runtime.close()
    return elapsed / (count // WIDTH * WIDTH)


async def publish(make: MakeRuntime, count: int, subscribers: int) -> float:
    """Seconds for one delivery: publish messages to `subscribers` agents, then wait until all are handled."""
    runtime = make()
    missing: list[float] = []
    deliveries = Deliveries(missing.append)
    await register(runtime, deliveries, types=subscribers, topic="ticks")
    topic, message, messages = TopicId("ticks", "0"), Tick(number=1), count // subscribers
    runtime.start()
    await runtime.publish_message(message, topic)
    await runtime.stop_when_idle()
    deliveries.expect(messages * subscribers)
    runtime.start()
    start = perf_counter()
    for _ in range(messages):
        await runtime.publish_message(message, topic)
    await runtime.stop_when_idle()
    elapsed = perf_counter() - start
    await runtime.close()
    if not missing:
        raise RuntimeError(f"{type(runtime).__name__} was idle before every message was delivered")
    return elapsed / (messages * subscribers)


def samplers(contender: str) -> dict[str, Sample]:
    """What to measure of one contender: measure → function of the number of operations."""
    if contender == QUEUE:
        return {
            CALL: floors.calls,
            CALL_IN_FLIGHT: partial(floors.calls_in_flight, width=WIDTH),
            **{key: partial(floors.publish, subscribers=number) for number, key in PUBLISH.items()},
        }
    make = RUNTIMES[contender]
    return {
        CALL: partial(calls, make),
        CALL_IN_FLIGHT: partial(calls_in_flight, make),
        **{key: partial(publish, make, subscribers=number) for number, key in PUBLISH.items()},
    }


def measure(contenders: list[str], *, rounds: int, operations: int) -> Iterator[Samples]:
    """Yield the samples (µs) of one round after the other; in each round the contenders take turns."""
    plan = {contender: samplers(contender) for contender in contenders}
    for _ in range(rounds):
        samples = Samples()
        for key in (CALL, CALL_IN_FLIGHT, *PUBLISH.values()):
            for contender in contenders:
                gc.collect()
                seconds = asyncio.run(_awaited(plan[contender][key](operations * SPEED[contender])))
                samples.add(key, contender, seconds * 1e6)
        yield samples


async def _awaited(sample: Awaitable[float]) -> float:
    return await sample
