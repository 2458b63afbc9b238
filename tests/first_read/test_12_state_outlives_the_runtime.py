"""Over a server, an agent's state is stored with every message it handles, so it outlives the process."""

from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import RedisRuntime

pytestmark = pytest.mark.integration


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


async def test_a_second_runtime_goes_on_where_the_first_one_ended(redis_url: str, namespace: str) -> None:
    ada = AgentId("account", "ada")
    for expected in (100, 200):
        async with RedisRuntime(redis_url, namespace=namespace) as runtime:
            await Account.register(runtime, "account", Account)
            assert await runtime.send_message(Deposit(amount=100), ada) == expected
