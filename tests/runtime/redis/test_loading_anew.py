"""An agent that is loaded anew finds what all its former turns did, also those whose commits are on the way."""

from __future__ import annotations

import asyncio

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription

from stagebell import RedisRuntime, agent_options
from stagebell.runtime.redis.keys import NamespaceKeys
from stagebell.runtime.redis.partition import Partition
from tests.support.agents import Ask, Doing, Note
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

AGENT = AgentId("diary", "d")


@agent_options(retry=None)
class Diary(Doing):
    """Keeps the numbers that it has handled."""

    def __init__(self, gate: asyncio.Event, server: Server, namespace: str) -> None:
        super().__init__(note=self.keep)
        self.kept: list[int] = []
        self._gate, self._client = gate, server.client()
        self._registry = NamespaceKeys(namespace).reg

    async def keep(self, agent: Doing, message: Note, ctx: MessageContext) -> None:
        """The first one publishes, and just then the subscriptions change: its commit is refused, and waits."""
        self.kept.append(message.number)
        if message.number == 0:
            await self._gate.wait()
            await self.publish_message(Ask(), TopicId("nobody", "x"))
            self._client.hincrby(self._registry, "v", 1)
        if message.text == "fails":
            raise ValueError("as asked")

    async def save_state(self) -> dict[str, list[int]]:
        return {"kept": self.kept}

    async def load_state(self, state: dict[str, list[int]]) -> None:
        self.kept = list(state["kept"])

    async def close(self) -> None:
        self._client.close()


def _in_memory(runtime: RedisRuntime) -> int:
    owned = runtime._running("a test").services.partitions.values()
    return sum(len(each.pending) for each in owned if isinstance(each, Partition))


async def test_a_commit_that_waits_is_not_undone_by_those_after_a_turn_that_failed(
    server: Server, namespace: str
) -> None:
    gate = asyncio.Event()
    async with RedisRuntime(server.url, namespace=namespace, partitions=1) as runtime:
        await Diary.register(runtime, "diary", lambda: Diary(gate, server, namespace))
        await runtime.add_subscription(TypeSubscription("notes", "diary"))
        for number in range(9):
            await runtime.publish_message(
                Note(number=number, text="fails" if number == 1 else ""), TopicId("notes", "d")
            )
        await eventually(lambda: _in_memory(runtime) == 9, 5)
        gate.set()
        await eventually(lambda: not _in_memory(runtime), 5)
        assert (await runtime.agent_save_state(AGENT))["kept"] == [0, 2, 3, 4, 5, 6, 7, 8]
