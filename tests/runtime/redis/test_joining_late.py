"""An agent type that a running process begins to host: messages that wait for it already are handled, none is lost."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import TopicId, TypeSubscription

from stagebell import Publisher, RedisRuntime
from tests.support.agents import Doing, Note
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_what_waits_for_a_type_is_handled_when_a_running_process_registers_it(
    server: Server, namespace: str
) -> None:
    heard: list[int] = []

    async def note(agent: Doing, message: Note, ctx: Any) -> None:
        heard.append(message.number)

    async with RedisRuntime(server.url, namespace=namespace, partitions=1) as first:
        await Doing.register(first, "late", lambda: Doing(note=note))
        await first.add_subscription(TypeSubscription("t", "late"))
    async with Publisher(server.url, namespace=namespace) as publisher:
        for number in range(20):
            await publisher.publish(Note(number=number), TopicId("t", "a"))
    async with RedisRuntime(server.url, namespace=namespace, partitions=1) as second:
        hosting = second._hosted

        async def hosted_for_a_while(hosted: Any) -> None:
            """The partition is ours, and was read, before AutoGen's `register` goes on."""
            await hosting(hosted)
            await eventually(lambda: len(heard) == 20, 5)

        second._hosted = hosted_for_a_while
        await Doing.register(second, "late", lambda: Doing(note=note))
    assert heard == list(range(20))


async def test_what_nobody_subscribes_to_is_said_once(
    server: Server, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Publisher(server.url, namespace=namespace) as publisher:
        for key in ("a", "b"):
            await publisher.publish(Note(number=1), TopicId("ordrs", key))
    said = [record.getMessage() for record in caplog.records if "ordrs" in record.getMessage()]
    assert len(said) == 1, said
    assert "nobody subscribes" in said[0]
