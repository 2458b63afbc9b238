"""`RedisRuntime` is the same runtime over a Redis or Valkey server: agents and calls do not change."""

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import RedisRuntime

pytestmark = pytest.mark.integration


class Greet(BaseModel):
    name: str


class Greeter(RoutedAgent):
    @message_handler
    async def greet(self, message: Greet, ctx: MessageContext) -> str:
        return f"Hello, {message.name}."


async def test_a_call_goes_through_the_server_and_back(redis_url: str, namespace: str) -> None:
    async with RedisRuntime(redis_url, namespace=namespace) as runtime:
        await Greeter.register(runtime, "greeter", lambda: Greeter("greets"))
        assert await runtime.send_message(Greet(name="Ada"), AgentId("greeter", "default")) == "Hello, Ada."
