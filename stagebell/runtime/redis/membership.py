"""Which workers are alive and what they host: a heartbeat each second, read by all.

A heartbeat is sent by the thread that renews the leases, over the connection that does it: whoever is seen here can
write to the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from stagebell.runtime.redis.keys import NamespaceKeys
from stagebell.runtime.redis.link import Link


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as it describes itself; `age_ms` is the time since its last beat."""

    name: str
    age_ms: int
    types: frozenset[str]
    host: str
    pid: int
    started_ms: int


class Membership:
    """The workers of a namespace, as of the last `refresh`."""

    def __init__(self, link: Link, namespace: str, timeout_ms: int) -> None:
        self._link = link
        self._keys = NamespaceKeys(namespace)
        self._timeout_ms = timeout_ms
        self._missing_since: dict[str, float] = {}
        self.own_types: set[str] = set()
        self.members: list[Member] = []
        self.silent: list[str] = []

    async def refresh(self) -> None:
        """Read the heartbeats."""
        time, beats = await asyncio.gather(
            self._link.ask("TIME"), self._link.ask("ZRANGE", self._keys.workers, "0", "-1", "WITHSCORES")
        )
        now = int(time[0]) * 1000 + int(time[1]) // 1000
        ages = {name.decode(): now - int(float(beat)) for name, beat in zip(beats[::2], beats[1::2], strict=True)}
        alive = [name for name, age in ages.items() if age <= self._timeout_ms]
        self.silent = [name for name in ages if name not in alive]
        described = await asyncio.gather(*(self._link.ask("HGETALL", self._keys.worker(name)) for name in alive))
        self.members = [_member(name, ages[name], flat) for name, flat in zip(alive, described, strict=True) if flat]

    def hosts(self, agent_type: str) -> list[str]:
        """The workers that host an agent type, in the same order everywhere."""
        return sorted(member.name for member in self.members if agent_type in member.types)

    def missing_for(self, agent_type: str) -> float:
        """For how many seconds nobody has hosted an agent type, as seen by this process; 0.0 when somebody does."""
        now = asyncio.get_running_loop().time()
        if agent_type in self.own_types or self.hosts(agent_type):
            self._missing_since.pop(agent_type, None)
            return 0.0
        return now - self._missing_since.setdefault(agent_type, now)


def describe_member(types: list[str], host: str, pid: int, started_ms: int) -> dict[str, str]:
    """What a worker says of itself, as stored."""
    return {"types": json.dumps(types), "host": host, "pid": str(pid), "started": str(started_ms)}


def _member(name: str, age_ms: int, flat: list[bytes]) -> Member:
    fields = {key.decode(): value.decode() for key, value in zip(flat[::2], flat[1::2], strict=True)}
    types = cast("list[str]", json.loads(fields.get("types", "[]")))
    return Member(
        name, age_ms, frozenset(types), fields.get("host", "?"), _number(fields, "pid"), _number(fields, "started")
    )


def _number(fields: Mapping[str, Any], name: str) -> int:
    text = fields.get(name, "0")
    return int(text) if str(text).isdecimal() else 0
