"""An agent whose state shows how often each message took effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_core import (
    AgentId,
    AgentRuntime,
    MessageContext,
    RoutedAgent,
    default_subscription,
    message_handler,
)
from pydantic import BaseModel


class Deposit(BaseModel):
    """An amount."""

    amount: int


class Amounts(BaseModel):
    """The answer."""

    amounts: list[int]


class Balance(BaseModel):
    """A question for the amounts."""


@default_subscription
class Account(RoutedAgent):
    """Keeps every amount it has heard of as its state."""

    def __init__(self) -> None:
        super().__init__("an account")
        self.amounts: list[int] = []

    @message_handler
    async def on_deposit(self, message: Deposit, ctx: MessageContext) -> None:
        self.amounts.append(message.amount)

    @message_handler
    async def on_balance(self, message: Balance, ctx: MessageContext) -> Amounts:
        return Amounts(amounts=self.amounts)

    async def save_state(self) -> Mapping[str, Any]:
        return {"amounts": self.amounts}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.amounts = list(state["amounts"])


ACCOUNT = AgentId("account", "default")


async def amounts(runtime: AgentRuntime) -> list[int]:
    """What the account has kept."""
    return (await runtime.send_message(Balance(), ACCOUNT)).amounts


def now_ms(client: Any) -> int:
    """The server's time."""
    seconds, micros = client.time()
    return int(seconds * 1000 + micros // 1000)
