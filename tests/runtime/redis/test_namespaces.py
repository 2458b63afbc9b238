"""A user who may use the keys of one namespace works in it, and cannot touch another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from autogen_core import AgentId, TopicId

from stagebell import Publisher, RedisRuntime
from stagebell.errors import ServerRefused
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.runtime.redis.requests import Delivery, Turn
from stagebell.runtime.redis.scripts import Scripts
from tests.support.agents import Ask, Note, agent, collect, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def tenant(server: Server, namespace: str) -> Iterator[str]:
    """The URL of a user with rights to one namespace."""
    client: Any = server.client()
    keys = (f"~sb:{{{namespace}}}:*", f"~sb:{{{namespace}:*")
    client.execute_command("ACL", "SETUSER", namespace, "on", ">pw", *keys, "+@all", "-@dangerous", "+info")
    yield server.url.replace("redis://", f"redis://{namespace}:pw@")
    client.execute_command("ACL", "DELUSER", namespace)
    client.close()


async def test_a_user_of_one_namespace_works_in_it(tenant: str, namespace: str) -> None:
    seen: list[str] = []
    runtime = RedisRuntime(tenant, namespace=namespace)
    await host(runtime, "echo", echo, collect(seen), topics=("news",))
    async with runtime, Publisher(tenant, namespace=namespace) as publisher:
        assert await asyncio.wait_for(publisher.call(Ask(text="a"), agent("echo")), 10) == "a"
        await publisher.publish(Note(text="b"), TopicId("news", "default"))
        await eventually(lambda: seen == ["b"], 5)


@pytest.mark.parametrize(
    "other", ["other", "{}x", "x{}"], ids=["another", "one that begins alike", "one that ends alike"]
)
async def test_another_namespace_is_refused_to_it(tenant: str, namespace: str, other: str) -> None:
    """I22: the credentials of one namespace cannot touch another."""
    foreign = other.format(namespace)
    with pytest.raises(ServerRefused):
        await asyncio.wait_for(RedisRuntime(tenant, namespace=foreign).start(), 10)
    with pytest.raises(ServerRefused):
        await asyncio.wait_for(Publisher(tenant, namespace=foreign).open(), 10)


async def test_no_script_writes_when_one_of_its_keys_is_of_another_namespace(
    server: Server, tenant: str, namespace: str
) -> None:
    """I22: a turn whose output goes to another namespace is refused as a whole."""
    client: Any = server.client()
    mine, foreign = PartitionKeys(namespace, "a", 0), PartitionKeys(f"{namespace}x", "a", 0)
    connection = await Connection.open(tenant)
    scripts = Scripts(connection, namespace)
    await scripts.load()
    grant: Any = await scripts.acquire(mine, worker="w", nonce="n", ttl_ms=60_000)
    sent = await scripts.send([Delivery(mine, "T", "a/1", b"{}")])
    turn = Turn(mine, grant.token, str(AgentId("a", "1")), sent.ids[0], "T")
    before = {key: client.dump(key) for key in client.keys(f"sb:{{{namespace}*")}
    out = Delivery(foreign, "T2", "a/2", b"{}")
    for attempt in (
        scripts.send([out]),
        scripts.send([Delivery(mine, "T3", "a/1", b"{}"), out]),
        scripts.commit(turn, version=0, state=b"{}", outputs=[out]),
    ):
        with pytest.raises(ServerRefused) as refused:
            await attempt
        assert refused.value.code == "NOPERM"
    assert {key: client.dump(key) for key in client.keys(f"sb:{{{namespace}*")} == before
    connection.close()
    client.close()
