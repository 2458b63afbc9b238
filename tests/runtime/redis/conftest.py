"""A world for each test of the scripts; at its end every key must have its place in the list of keys."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from stagebell.runtime.redis.connection import Connection
from tests.runtime.redis.world import World
from tests.support.servers import Server


@pytest.fixture
async def world(server: Server, namespace: str) -> AsyncIterator[World]:
    connection = await Connection.open(server.url, name="test")
    client = server.client()
    world = World(connection, namespace, client)
    await world.scripts.load()
    yield world
    if not world.spoilt:
        world.check_keys()
    if names := world.names():
        client.delete(*names)
    client.close()
    connection.close()
