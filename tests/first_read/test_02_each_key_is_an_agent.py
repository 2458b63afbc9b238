"""An agent is named by its type and a key, and is made when its first message comes."""

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class Add(BaseModel):
    item: str


class Basket(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("the basket of one customer")
        self.items: list[str] = []

    @message_handler
    async def add(self, message: Add, ctx: MessageContext) -> int:
        self.items.append(message.item)
        return len(self.items)


async def test_every_key_has_an_object_of_its_own() -> None:
    async with LocalRuntime() as runtime:
        await Basket.register(runtime, "basket", Basket)
        ada, bob = AgentId("basket", "ada"), AgentId("basket", "bob")
        assert await runtime.send_message(Add(item="tea"), ada) == 1
        assert await runtime.send_message(Add(item="rice"), ada) == 2
        assert await runtime.send_message(Add(item="salt"), bob) == 1
