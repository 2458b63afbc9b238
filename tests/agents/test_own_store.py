"""A store that somebody else writes, here over Redis: the suite that ours pass tests it, and it is used as ours are."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from stagebell import LocalRuntime
from stagebell.agents.stores.memory import MemoryStore
from stagebell.agents.stores.port import RunStore, Snapshot
from stagebell.errors import SnapshotBroken, SnapshotConflict
from stagebell.testing.contract import RunStoreContract
from tests.support.loops import host_model, run, says, sent

pytestmark = pytest.mark.integration

SAVE = """
local newest = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if tonumber(ARGV[1]) <= newest then return newest end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'state', ARGV[2])
return 0
"""


class RedisStore:
    """The newest snapshot of each conversation, in a hash."""

    def __init__(self, url: str, prefix: str) -> None:
        self._client: Any = Redis.from_url(url)
        self._prefix = prefix

    async def save(self, key: str, snapshot: Snapshot) -> None:
        try:
            text = json.dumps(dict(snapshot.state), allow_nan=False)
        except TypeError as error:
            raise ValueError(str(error)) from error
        if newest := await self._client.eval(SAVE, 1, self._prefix + key, snapshot.version, text):
            raise SnapshotConflict(key, snapshot.version, newest)

    async def load(self, key: str, version: int | None = None) -> Snapshot | None:
        found = await self._client.hgetall(self._prefix + key)
        if not found or version not in (None, int(found[b"version"])):
            return None
        try:
            return Snapshot(int(found[b"version"]), json.loads(found[b"state"]))
        except ValueError as error:
            raise SnapshotBroken(key, "Redis", str(error)) from error

    async def versions(self, key: str) -> list[int]:
        found = await self.load(key)
        return [] if found is None else [found.version]

    async def close(self) -> None:
        await self._client.aclose()


class TestRedisStore(RunStoreContract):
    """The suite, as a user has it."""

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> None:
        self.url, self.prefix = redis_url, f"runs:{uuid4().hex}:"

    def make_store(self) -> RunStore:
        return RedisStore(self.url, self.prefix)

    def open_again(self) -> RunStore:
        return RedisStore(self.url, self.prefix)


async def test_a_conversation_goes_on_where_such_a_store_has_it(redis_url: str) -> None:
    prefix, model = f"runs:{uuid4().hex}:", says("first", "second")
    for task in ("one", "two"):
        store = RedisStore(redis_url, prefix)
        async with LocalRuntime() as runtime:
            await host_model(runtime, model, store=store)
            await run(runtime, task)
        await store.close()
    assert "one" in sent(model)


class Careless(MemoryStore):
    """Lets whoever comes last win."""

    async def save(self, key: str, snapshot: Snapshot) -> None:
        self._texts.pop(key, None)
        await super().save(key, snapshot)


class Forgetful(MemoryStore):
    """Keeps what it was given for as long as it is not asked for."""

    async def load(self, key: str, version: int | None = None) -> Snapshot | None:
        return None


@pytest.mark.parametrize("store", [Careless, Forgetful])
async def test_a_store_that_loses_something_does_not_pass(store: type[MemoryStore]) -> None:
    class Suite(RunStoreContract):
        def make_store(self) -> RunStore:
            return store()

    suite, failed = Suite(), list[str]()
    for name in (each for each in dir(Suite) if each.startswith("test_")):
        try:
            await getattr(suite, name)()
        except AssertionError:
            failed.append(name)
    assert failed
