"""The helper package that AutoGen's own tests import and that its archives on PyPI do not carry.

Only the names that the selected test files use, with the behaviour that their assertions rest on.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from autogen_core import (
    BaseAgent,
    DefaultTopicId,
    MessageContext,
    RoutedAgent,
    default_subscription,
    message_handler,
)


@dataclass
class MessageType: ...


@dataclass
class ContentMessage:
    content: str


@dataclass
class CascadingMessageType:
    round: int


class NoopAgent(BaseAgent):
    """Can be registered and created; any message to it is an error."""

    def __init__(self) -> None:
        super().__init__("An agent without handlers")

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        raise NotImplementedError(f"{type(self).__name__} handles no messages, got {type(message).__name__}")


class LoopbackAgent(RoutedAgent):
    """Answers each message with the message itself, and keeps what it got."""

    def __init__(self) -> None:
        super().__init__("An agent that answers with what it was sent")
        self.num_calls = 0
        self.received_messages: list[Any] = []
        self.event = asyncio.Event()

    @message_handler
    async def send_back(
        self, message: MessageType | ContentMessage, ctx: MessageContext
    ) -> MessageType | ContentMessage:
        self.num_calls += 1
        self.received_messages.append(message)
        self.event.set()
        return message


@default_subscription
class LoopbackAgentWithDefaultSubscription(LoopbackAgent): ...


@default_subscription
class CascadingAgent(RoutedAgent):
    """Publishes the following round to all the others, until `max_rounds` is reached."""

    def __init__(self, max_rounds: int) -> None:
        super().__init__("An agent that starts the next round")
        self.num_calls = 0
        self.max_rounds = max_rounds

    @message_handler
    async def next_round(self, message: CascadingMessageType, ctx: MessageContext) -> None:
        self.num_calls += 1
        if message.round < self.max_rounds:
            await self.publish_message(CascadingMessageType(round=message.round + 1), topic_id=DefaultTopicId())
