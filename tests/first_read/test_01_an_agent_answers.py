"""An agent is a class with handlers; a call reaches the handler for its type and brings the answer back."""

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class Greet(BaseModel):
    name: str


class Greeter(RoutedAgent):
    @message_handler
    async def greet(self, message: Greet, ctx: MessageContext) -> str:
        return f"Hello, {message.name}."


async def test_a_call_brings_the_handlers_answer_back() -> None:
    async with LocalRuntime() as runtime:
        await Greeter.register(runtime, "greeter", lambda: Greeter("greets"))
        answer = await runtime.send_message(Greet(name="Ada"), AgentId("greeter", "default"))
        assert answer == "Hello, Ada."
