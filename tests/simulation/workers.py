"""The production runtime as a simulated process: its connections, clock and keeper of leases are virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import redis
from autogen_core import AgentId, TypeSubscription

from stagebell import RedisRuntime
from stagebell.runtime.engine.clock import Alarm
from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.lease_thread import LeaseKeeper
from tests.simulation.agents import DESK, NEWS, Clerk, Clerk2, Porter
from tests.simulation.desk import Desk
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.plan import Plan

URL = "unix:///simulated"
NAMESPACE = "sim"
TYPES: dict[str, Callable[[], Porter]] = {"clerk": Clerk, "reader": Clerk, "porter": Porter}
NEXT_TYPES: dict[str, Callable[[], Porter]] = {"clerk": Clerk2, "reader": Clerk2, "porter": Porter}
"""Those of the next version of the program."""


class VirtualClock:
    """The time of day in the simulation; see `engine.clock.Clock`."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._loop.now * 1000)

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call it in the event loop at this time."""
        return self._loop.call_at(at_ms / 1000, call)


class _Pipeline:
    """What `LeaseKeeper` asks a synchronous client for, executed in one go."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._commands: list[list[bytes]] = []

    def eval(self, *parts: Any) -> None:
        """A script."""
        self._add("EVAL", *parts)

    def zrem(self, *parts: Any) -> None:
        """A command."""
        self._add("ZREM", *parts)

    def zadd(self, key: str, scores: dict[str, int], *, xx: bool) -> None:
        """A command."""
        assert xx
        self._add("ZADD", key, "XX", *(part for member, score in scores.items() for part in (score, member)))

    def delete(self, *parts: Any) -> None:
        """A command."""
        self._add("DEL", *parts)

    def _add(self, *parts: Any) -> None:
        self._commands.append([str(part).encode() for part in parts])

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers; either all commands get lost, or perhaps their answers."""
        loop, chance, weather = self._network.loop, self._network.loop.chance, self._network.weather
        if loop.current is not None and loop.current.starved_until > loop.now:
            raise redis.ConnectionError("cut off by the simulation")
        if chance.random() < weather.lost_command * len(self._commands):
            raise redis.ConnectionError("broken by the simulation")
        answers = [self._network.execute(command) for command in self._commands]
        if chance.random() < weather.lost_reply * len(self._commands):
            raise redis.ConnectionError("broken by the simulation")
        return answers


class _Client:
    def __init__(self, network: Network) -> None:
        self._network = network

    def pipeline(self, transaction: bool = True) -> _Pipeline:
        """As redis-py's."""
        return _Pipeline(self._network)

    def close(self) -> None:
        """Nothing is open."""


class VirtualKeeper(LeaseKeeper):
    """Keeps leases by timers of its process, which stop with it."""

    network: Network
    """Set on a subclass for each schedule."""
    _stopped = False
    _next: asyncio.Handle | None = None

    def connect(self, address: Address, timeout: float) -> Any:
        """A client of the simulated server."""
        return _Client(self.network)

    def start(self, described: dict[str, str]) -> None:
        """Start to beat."""
        self._described = described
        self._next = self._loop.call_soon(self._tick)

    def hurry(self) -> None:
        """Beat at once."""
        if self._next is not None:
            self._next.cancel()
        self._next = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        if not self._stopped:
            self.beat()
            self._next = self._loop.call_later(self._settings.lease / 3, self._tick)

    async def stop(self) -> None:
        """Stop."""
        self._stopped = True
        if self._next is not None:
            self._next.cancel()
            self.say_goodbye()


class SimulatedRuntime(RedisRuntime):
    """The production runtime, with the virtual keeper."""


def runtime_class(network: Network) -> type[SimulatedRuntime]:
    """The runtime for the workers of one schedule."""
    keeper = type("Keeper", (VirtualKeeper,), {"network": network})
    return type("Runtime", (SimulatedRuntime,), {"_keeper": keeper})


async def make_worker(network: Network, plan: Plan, version: int) -> RedisRuntime:
    """A runtime that hosts the agents of the simulation, in this version of their program."""
    runtime = runtime_class(network)(
        URL,
        namespace=NAMESPACE,
        lease=plan.lease,
        partitions=plan.partitions,
        inbox_limit=plan.room,
        read_credit=plan.credit,
        undeliverable_after=60.0,
        stop_grace=0.5,
        clock=VirtualClock(network.loop),
    )
    for name, cls in (TYPES if version == 1 else NEXT_TYPES).items():
        await cls.register(runtime, name, cls)
        await runtime.add_subscription(TypeSubscription(name, name))
    await runtime.add_subscription(TypeSubscription(NEWS, "clerk"))
    if plan.desk:
        id = AgentId.from_str(DESK)
        await runtime.register_agent_instance(Desk(), id)
        await runtime.add_subscription(TypeSubscription(id.type, id.type))
    await runtime.start()
    return runtime
