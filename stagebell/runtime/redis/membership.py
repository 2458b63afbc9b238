"""Which workers are alive and what they host: a heartbeat each second, read by all.

A heartbeat is sent by the thread that renews the leases, over the connection that does it: whoever is seen here can
write to the server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from stagebell.errors import ServerRefused
from stagebell.runtime.redis.keys import NamespaceKeys
from stagebell.runtime.redis.link import Link

logger = logging.getLogger("stagebell")

_WRONG_TYPE = "WRONGTYPE"


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as it describes itself; `age_ms` is the time since its last beat.

    One that is `stopping` ends the turns that it has open and takes nothing more.
    `paused` are agents whose messages wait for a newer program, with the number of these messages.
    """

    name: str
    age_ms: int
    types: frozenset[str]
    host: str
    pid: int
    started_ms: int
    stopping: bool = False
    paused: Mapping[str, int] = field(default_factory=dict[str, int])


class Membership:
    """The workers of a namespace, as of the last `refresh`."""

    def __init__(self, link: Link, namespace: str, timeout_ms: int) -> None:
        self._link = link
        self._keys = NamespaceKeys(namespace)
        self._timeout_ms = timeout_ms
        self._missing_since: dict[str, float] = {}
        self._spoilt: set[str] = set()
        self.own_types: set[str] = set()
        self._stopping: set[str] = set()
        self.alive: frozenset[str] | None = None
        self.members: list[Member] = []
        self.silent: list[str] = []

    async def refresh(self) -> None:
        """Read the heartbeats. Keys of a type that none of us wrote are logged once, and tell of nobody."""
        time, beats = await asyncio.gather(
            self._link.ask("TIME"), self._read("ZRANGE", self._keys.workers, "0", "-1", "WITHSCORES")
        )
        now = int(time[0]) * 1000 + int(time[1]) // 1000
        names = [name.decode("utf-8", "backslashreplace") for name in beats[::2]]
        ages = {name: now - int(float(beat)) for name, beat in zip(names, beats[1::2], strict=True) if _finite(beat)}
        alive = [name for name, age in ages.items() if age <= self._timeout_ms]
        self.alive = frozenset(alive)
        self.silent = [name for name in ages if name not in self.alive]
        described = await asyncio.gather(*(self._read("HGETALL", self._keys.worker(name)) for name in alive))
        self.members = [_member(name, ages[name], flat) for name, flat in zip(alive, described, strict=True) if flat]

    async def _read(self, command: str, key: str, *arguments: str) -> list[bytes]:
        try:
            found: list[bytes] = await self._link.ask(command, key, *arguments)
        except ServerRefused as error:
            if error.code != _WRONG_TYPE:
                raise
            if key not in self._spoilt:
                self._spoilt.add(key)
                logger.error("%s has a type that none of us wrote, whom it tells of is not seen: delete it", key)
            return []
        self._spoilt.discard(key)
        return found

    def hosts(self, agent_type: str) -> list[str]:
        """The workers that take messages of an agent type, in the same order everywhere."""
        hosts = [member for member in self.members if agent_type in member.types and not member.stopping]
        return sorted(member.name for member in hosts if member.name not in self._stopping)

    def note_stopping(self, worker: str) -> None:
        """A worker was heard to stop, before it could be read."""
        self._stopping = {name for name in self._stopping if not self.is_gone(name)} | {worker}

    def is_gone(self, worker: str) -> bool:
        """True when a worker is known to have ended, or to have been silent for too long."""
        return self.alive is not None and worker not in self.alive

    def is_hosted(self, agent_type: str) -> bool:
        """True when a worker hosts an agent type; one that is stopping counts: what waits for it may run there now."""
        return agent_type in self.own_types or any(agent_type in member.types for member in self.members)

    def missing_for(self, agent_type: str) -> float:
        """For how many seconds nobody has hosted an agent type, as seen by this process; 0.0 when somebody does."""
        now = asyncio.get_running_loop().time()
        if self.is_hosted(agent_type):
            self._missing_since.pop(agent_type, None)
            return 0.0
        return now - self._missing_since.setdefault(agent_type, now)


def describe_member(
    types: list[str], host: str, pid: int, started_ms: int, paused: Mapping[str, int], *, stopping: bool
) -> dict[str, str]:
    """What a worker says of itself, as stored; `paused` are agents with the number of messages that wait for them."""
    told = {"types": json.dumps(types), "host": host, "pid": str(pid), "started": str(started_ms)}
    told["paused"] = json.dumps(paused)
    return {**told, "stopping": "1"} if stopping else told


def _member(name: str, age_ms: int, flat: list[bytes]) -> Member:
    texts = [text.decode("utf-8", "backslashreplace") for text in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    types = _types(fields.get("types", "[]"))
    return Member(
        name,
        age_ms,
        types,
        fields.get("host", "?"),
        _number(fields, "pid"),
        _number(fields, "started"),
        fields.get("stopping") == "1",
        _paused(fields.get("paused", "{}")),
    )


def _paused(text: str) -> dict[str, int]:
    try:
        paused = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(paused, dict):
        return {}
    return {agent: count for agent, count in cast("dict[str, object]", paused).items() if isinstance(count, int)}


def _types(text: str) -> frozenset[str]:
    try:
        types = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    if not isinstance(types, list):
        return frozenset()
    return frozenset(name for name in cast("list[object]", types) if isinstance(name, str))


def _finite(beat: bytes) -> bool:
    return math.isfinite(float(beat))


def _number(fields: Mapping[str, Any], name: str) -> int:
    text = fields.get(name, "0")
    return int(text) if str(text).isdecimal() and len(str(text)) < 20 else 0
