"""A publish goes to a topic; each matching subscription names an agent, whose key is the topic's source."""

import pytest
from autogen_core import MessageContext, RoutedAgent, TopicId, message_handler, type_subscription
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class OrderPlaced(BaseModel):
    item: str


SEEN: list[str] = []


@type_subscription("orders")
class Stock(RoutedAgent):
    @message_handler
    async def on_order(self, message: OrderPlaced, ctx: MessageContext) -> None:
        SEEN.append(f"stock of {self.id.key}: one {message.item} less")


@type_subscription("orders")
class Billing(RoutedAgent):
    @message_handler
    async def on_order(self, message: OrderPlaced, ctx: MessageContext) -> None:
        SEEN.append(f"bill in {self.id.key}: one {message.item}")


async def test_every_subscribed_type_gets_it_at_the_topics_source() -> None:
    async with LocalRuntime() as runtime:
        await Stock.register(runtime, "stock", lambda: Stock("counts"))
        await Billing.register(runtime, "billing", lambda: Billing("bills"))
        await runtime.publish_message(OrderPlaced(item="tea"), TopicId("orders", source="eu"))
        await runtime.stop_when_idle()
    assert sorted(SEEN) == ["bill in eu: one tea", "stock of eu: one tea less"]
