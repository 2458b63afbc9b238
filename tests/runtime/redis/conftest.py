"""What tests of the scripts and of the runtimes work with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import try_get_known_serializers_for_type

from stagebell import RedisRuntime
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.link import Link
from tests.failure.view import View
from tests.runtime.redis.retrying import Bench
from tests.runtime.redis.two_runtimes import Two
from tests.runtime.redis.world import World
from tests.support.agents import Ask, Note
from tests.support.servers import Server


@pytest.fixture
async def world(server: Server, namespace: str) -> AsyncIterator[World]:
    """A partition's keys and the scripts; at the end every key must have its place in the list of keys."""
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


@pytest.fixture
async def two(server: Server, namespace: str) -> AsyncIterator[Two]:
    """Two runtimes, to be started when they host what the test wants."""
    options: Any = {"namespace": namespace, "cancel_grace": 0.1, "stop_grace": 0.3}
    near, far = RedisRuntime(server.url, **options), RedisRuntime(server.url, **options)
    for runtime in (near, far):
        for sent in (Ask, Note):
            runtime.add_message_serializer(try_get_known_serializers_for_type(sent))
    client = server.client()
    yield Two(near, far, View(client, namespace))
    await asyncio.gather(near.close(), far.close())
    client.close()


@pytest.fixture
async def bench(server: Server, namespace: str) -> AsyncIterator[Bench]:
    """One runtime whose delays pass when the test says so."""
    bench = Bench(server, namespace)
    yield bench
    await bench.runtime.close()
    bench.client.close()


@pytest.fixture
async def link(server: Server, namespace: str) -> AsyncIterator[Link]:
    """A connection of its own to the server."""
    link = Link(server.url, namespace, "test")
    await link.open()
    yield link
    await link.close()
