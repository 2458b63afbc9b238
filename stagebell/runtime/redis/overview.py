"""A namespace at one moment, as the server knows it: workers, agent types, partitions, and what waits.

It only reads, and needs no worker. The parts are read one after the other, so while work goes on the sums of
different parts need not agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

from stagebell.runtime.redis.directory import Directory, TypeEntry
from stagebell.runtime.redis.keys import EventsKeys, LeasedKeys, ProcessKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.membership import Member, Membership

_DESCRIBED_MS = 60_000
"""Workers that have been silent for longer are left out."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker; `beat_ms` is the time since its last beat, `owned` the number of its partitions.

    `paused` are agents whose messages it cannot read, with the number of messages that wait for a newer program.
    `backlog` and `dead_letters` are those of its own inbox, which the agents bound to this process share.
    """

    name: str
    host: str
    pid: int
    up_ms: int
    beat_ms: int
    alive: bool
    types: list[str]
    owned: int
    backlog: int
    dead_letters: int
    paused: dict[str, int]


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: who owns it, for how long (0 when its lease has ended), and what is in it.

    `started` counts the messages whose turn has begun, `states` the agents with a stored state, `timers` the messages
    that come later.
    """

    type: str
    number: int
    owner: str
    lease_ms: int
    backlog: int
    started: int
    dead_letters: int
    states: int
    timers: int

    @property
    def owned(self) -> bool:
        """True while a worker holds its lease."""
        return bool(self.owner) and self.lease_ms > 0

    @property
    def empty(self) -> bool:
        """True when nothing waits in it and nothing is set aside."""
        return not (self.backlog or self.started or self.dead_letters or self.timers)


@dataclass(frozen=True, slots=True)
class TypeView:
    """One agent type: `hosts` are its live workers, `bound_to` the process that it is bound to, if any."""

    name: str
    hosts: list[str]
    bound_to: str
    partitions: list[PartitionView]

    @property
    def without_owner(self) -> int:
        """Partitions that no worker holds."""
        return sum(not part.owned for part in self.partitions)

    @property
    def backlog(self) -> int:
        """Messages in all partitions."""
        return sum(part.backlog for part in self.partitions)

    @property
    def started(self) -> int:
        """Messages whose turn has begun."""
        return sum(part.started for part in self.partitions)

    @property
    def dead_letters(self) -> int:
        """Messages that were set aside."""
        return sum(part.dead_letters for part in self.partitions)

    @property
    def states(self) -> int:
        """Agents with a stored state."""
        return sum(part.states for part in self.partitions)

    @property
    def timers(self) -> int:
        """Messages that come later."""
        return sum(part.timers for part in self.partitions)

    def sums(self) -> dict[str, int]:
        """All of these by name, and `owned`, the partitions that a worker holds."""
        names = ("without_owner", "backlog", "started", "dead_letters", "states", "timers")
        return {"owned": len(self.partitions) - self.without_owner, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True)
class EventsView:
    """The stream to which other systems publish; `types` are the message types known in the namespace.

    `timers` counts the publishes that come later.
    """

    owner: str
    lease_ms: int
    backlog: int
    dead_letters: int
    timers: int
    types: list[str]


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it; `now_ms` is the server's clock."""

    namespace: str
    now_ms: int
    workers: list[WorkerView]
    types: list[TypeView]
    events: EventsView

    @classmethod
    async def read(cls, url: str, namespace: str, *, lease_ms: int = 3000) -> Self:
        """Read it from the server.

        Args:
            url: of the server.
            namespace: what to look at.
            lease_ms: a worker not heard of for longer than this many milliseconds is silent.

        Raises:
            ServerUnavailable: the server cannot be reached.
            ServerRefused: it refused the credentials or the commands.
        """
        link = Link(url, namespace, "stagebell-ps")
        await link.open()
        try:
            return cls(**await _Reader(link, namespace, lease_ms).read())
        finally:
            await link.close()


class _Reader:
    def __init__(self, link: Link, namespace: str, lease_ms: int) -> None:
        self._link = link
        self._namespace = namespace
        self._lease_ms = lease_ms
        self._directory = Directory(link, namespace, partitions=1)
        self._membership = Membership(link, namespace, _DESCRIBED_MS)
        self._now_ms = 0

    async def read(self) -> dict[str, Any]:
        """The fields of an `Overview`."""
        seconds, micros = await self._link.ask("TIME")
        self._now_ms = int(seconds) * 1000 + int(micros) // 1000
        await self._directory.refresh()
        await self._membership.refresh()
        # One type after the other: what is asked at once stays within bounds with many types.
        types = [await self._type(name, entry) for name, entry in sorted(self._directory.types.items())]
        owned = Counter(part.owner for view in types for part in view.partitions if part.owned)
        members = sorted(self._membership.members, key=lambda member: member.started_ms)
        return {
            "namespace": self._namespace,
            "now_ms": self._now_ms,
            "workers": [await self._worker(member, owned[member.name]) for member in members],
            "types": types,
            "events": await self._events(),
        }

    async def _worker(self, member: Member, owned: int) -> WorkerView:
        keys = ProcessKeys(self._namespace, member.name)
        backlog, dead = await asyncio.gather(self._link.ask("XLEN", keys.inbox), self._link.ask("XLEN", keys.dlq))
        return WorkerView(
            name=member.name,
            host=member.host,
            pid=member.pid,
            up_ms=max(0, self._now_ms - member.started_ms),
            beat_ms=max(0, member.age_ms),
            alive=member.age_ms <= self._lease_ms,
            types=sorted(member.types),
            owned=owned,
            backlog=backlog,
            dead_letters=dead,
            paused=dict(member.paused),
        )

    async def _type(self, name: str, entry: TypeEntry) -> TypeView:
        numbers = range(0 if entry.worker else entry.partitions)
        partitions = await asyncio.gather(*(self._partition(name, number) for number in numbers))
        hosts = [m.name for m in self._membership.members if name in m.types and m.age_ms <= self._lease_ms]
        return TypeView(name, sorted(hosts), entry.worker, partitions)

    async def _partition(self, name: str, number: int) -> PartitionView:
        keys = self._directory.partition(name, number)
        (owner, lease_ms), backlog, started, dead, states, timers = await asyncio.gather(
            self._owner(keys),
            self._link.ask("XLEN", keys.inbox),
            self._link.ask("HLEN", keys.run),
            self._link.ask("XLEN", keys.dlq),
            self._link.ask("SCARD", keys.ids),
            self._link.ask("ZCARD", keys.due),
        )
        return PartitionView(name, number, owner, lease_ms, backlog, started, dead, states, timers)

    async def _events(self) -> EventsView:
        keys = EventsKeys(self._namespace)
        (owner, lease_ms), backlog, dead, timers = await asyncio.gather(
            self._owner(keys),
            self._link.ask("XLEN", keys.inbox),
            self._link.ask("XLEN", keys.dlq),
            self._link.ask("ZCARD", keys.due),
        )
        return EventsView(owner, lease_ms, backlog, dead, timers, sorted(self._directory.message_types()))

    async def _owner(self, keys: LeasedKeys) -> tuple[str, int]:
        owner, until = await self._link.ask("HMGET", keys.own, "owner", "until")
        remaining = int(float(until or 0)) - self._now_ms
        return (owner or b"").decode(), max(0, remaining) if owner else 0
