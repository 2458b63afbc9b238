"""A program that hosts no agents publishes to them and calls them with a `Publisher`."""

import asyncio

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, TopicId, message_handler, type_subscription
from pydantic import BaseModel

from stagebell import Publisher, RedisRuntime

pytestmark = pytest.mark.integration


class Temperature(BaseModel):
    celsius: float


class Maximum(BaseModel):
    pass


@type_subscription("weather")
class Station(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("remembers the hottest hour")
        self.values: list[float] = []

    @message_handler
    async def on_temperature(self, message: Temperature, ctx: MessageContext) -> None:
        self.values.append(message.celsius)

    @message_handler
    async def on_maximum(self, message: Maximum, ctx: MessageContext) -> float:
        return max(self.values)


async def test_an_outside_program_is_heard_and_answered(redis_url: str, namespace: str) -> None:
    async with RedisRuntime(redis_url, namespace=namespace) as runtime:
        await Station.register(runtime, "station", Station)
        async with Publisher(redis_url, namespace=namespace) as publisher:
            for celsius in (17.5, 31.0, 24.0):
                await publisher.publish(Temperature(celsius=celsius), TopicId("weather", "lisbon"))
            hottest = await asyncio.wait_for(publisher.call(Maximum(), AgentId("station", "lisbon")), 10)
    assert hottest == 31.0
