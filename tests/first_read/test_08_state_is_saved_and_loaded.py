"""An agent that says what its state is can be saved as JSON, and go on in another runtime."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class Deposit(BaseModel):
    amount: int


class Account(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("an account")
        self.balance = 0

    @message_handler
    async def deposit(self, message: Deposit, ctx: MessageContext) -> int:
        self.balance += message.amount
        return self.balance

    async def save_state(self) -> Mapping[str, Any]:
        return {"balance": self.balance}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.balance = state["balance"]


async def test_an_account_moves_to_another_runtime() -> None:
    ada = AgentId("account", "ada")
    async with LocalRuntime() as first:
        await Account.register(first, "account", Account)
        await first.send_message(Deposit(amount=100), ada)
        saved = json.dumps(await first.save_state())
    assert saved == '{"account/ada": {"balance": 100}}'

    async with LocalRuntime() as second:
        await Account.register(second, "account", Account)
        await second.load_state(json.loads(saved))
        assert await second.send_message(Deposit(amount=1), ada) == 101
