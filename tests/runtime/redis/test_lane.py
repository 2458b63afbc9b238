"""One sender's messages to one agent keep their order, also while subscriptions change under them."""

from __future__ import annotations

import asyncio

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, TopicId, TypeSubscription, event, rpc
from pydantic import BaseModel

from stagebell import Publisher, RedisRuntime
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class Numbered(BaseModel):
    number: int


class Listening(RoutedAgent):
    def __init__(self, heard: list[int]) -> None:
        super().__init__("Writes down what it hears.")
        self._heard = heard

    @event
    async def on_event(self, message: Numbered, ctx: MessageContext) -> None:
        self._heard.append(message.number)

    @rpc
    async def on_call(self, message: Numbered, ctx: MessageContext) -> int:
        self._heard.append(message.number)
        return message.number


async def test_order_survives_changes_of_the_registry(server: Server, namespace: str) -> None:
    """I7: first in, first out for each sender and receiver, also while subscriptions change."""
    heard: list[int] = []
    async with (
        RedisRuntime(server.url, namespace=namespace) as runtime,
        Publisher(server.url, namespace=namespace) as publisher,
    ):
        await Listening.register(runtime, "listening", lambda: Listening(heard))
        await runtime.add_subscription(TypeSubscription("numbers", "listening"))
        sends: list[asyncio.Task[object]] = []
        for number in range(400):
            message = Numbered(number=number)
            send = (
                publisher.call(message, AgentId("listening", "x"))
                if number % 3 == 0
                else publisher.publish(message, TopicId("numbers", "x"))
            )
            sends.append(asyncio.ensure_future(send))
            if number % 20 == 10:
                await runtime.add_subscription(TypeSubscription(f"other-{number}", "listening"))
        await asyncio.gather(*sends)
        await eventually(lambda: len(heard) == 400, within=5)
    assert heard == list(range(400))
