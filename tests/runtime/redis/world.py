"""Two partitions of one namespace on a real server, and what tests of the scripts do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.keys import NamespaceKeys, PartitionKeys, ProcessKeys, lifetime
from stagebell.runtime.redis.requests import Delivery, Turn
from stagebell.runtime.redis.results import Grant
from stagebell.runtime.redis.scripts import Scripts

Entry = tuple[str, dict[str, str]]


class World:
    """`a` and `b` are partitions of the agent types a and b; `spoilt` once a test wrote foreign keys."""

    def __init__(self, connection: Connection, namespace: str, client: redis.Redis) -> None:
        self.scripts = Scripts(connection, namespace)
        self.connection = connection
        self.namespace = namespace
        self.client: Any = client
        self.shared = NamespaceKeys(namespace)
        self.a = PartitionKeys(namespace, "a", 0)
        self.b = PartitionKeys(namespace, "b", 1)
        self.spoilt = False

    # ---- steps

    async def own(self, keys: PartitionKeys | None = None, worker: str = "w1", nonce: str = "n") -> str:
        """Let the worker own a partition; its token."""
        grant = await self.scripts.acquire(keys or self.a, worker=worker, nonce=nonce, ttl_ms=60_000)
        assert isinstance(grant, Grant)
        return grant.token

    async def arrive(self, turn_id: str = "T", agent: str = "a/1", envelope: bytes = b"hello") -> str:
        """Let a message arrive in partition a; its entry id."""
        reply = await self.scripts.send([Delivery(self.a, turn_id, agent, envelope)], window_ms=0)
        assert reply.status == "OK"
        return reply.ids[0]

    async def turn(self, turn_id: str = "T", agent: str = "a/1", token: str | None = None) -> Turn:
        """A started turn of an agent in partition a."""
        token = token or await self.own()
        turn = Turn(self.a, token, agent, await self.arrive(turn_id, agent), turn_id)
        assert await self.scripts.begin(turn) == 1
        return turn

    async def call(self, turn: Turn, k: str = "0.0", **changes: Any) -> Any:
        """Call k of a turn, to agent b/1 in partition b."""
        known: dict[str, Any] = {"digest": "digest-8", "known_replies": 0, "known_savepoints": 0}
        to = Delivery(self.b, f"{turn.turn_id}.{k}", "b/1", b"request")
        return await self.scripts.call(turn, k, to, **known | changes)

    # ---- what is in the server

    def entries(self, stream: str) -> list[Entry]:
        """All entries of a stream, as text."""
        found = self.client.xrange(stream)
        return [(i.decode(), {k.decode(): v.decode() for k, v in f.items()}) for i, f in found]

    def bells(self, worker: str = "w1") -> list[dict[str, str]]:
        """What rang at this worker."""
        return [fields for _, fields in self.entries(ProcessKeys(self.namespace, worker).bell)]

    def hash(self, key: str) -> dict[str, str]:
        """A hash, as text."""
        return {k.decode(): v.decode() for k, v in self.client.hgetall(key).items()}

    def names(self) -> list[str]:
        """All keys of the namespace."""
        patterns = (f"sb:{{{self.namespace}}}*", f"sb:{{{self.namespace}:*")
        return sorted(key.decode() for p in patterns for key in self.client.scan_iter(p, count=1000))

    def image(self) -> dict[str, tuple[bytes, bool]]:
        """Every key with its bytes, and whether it will expire."""
        return {name: (self.client.dump(name), self.client.pttl(name) > 0) for name in self.names()}

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """What happens inside must not change a single byte."""
        before = self.image()
        yield
        assert self.image() == before

    def spoil(self, key: str) -> None:
        """Put a value of a wrong type under a key."""
        self.spoilt = True
        self.client.delete(key)
        rule = lifetime(key)
        if rule is not None and rule.kind == "string":
            self.client.rpush(key, "wrong")
        else:
            self.client.set(key, "wrong")

    def check_keys(self) -> None:
        """Each key has its place in the list of keys, its type, and an end if it must have one."""
        for name in self.names():
            rule = lifetime(name)
            assert rule is not None, f"{name} is not in the list of keys"
            assert self.client.type(name).decode() == rule.kind, name
            assert not rule.expires or self.client.pttl(name) > 0, f"{name} would live for ever"
