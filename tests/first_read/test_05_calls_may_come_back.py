"""While an agent awaits a call, whatever that call leads to may call it back; others wait their turn."""

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class Plan(BaseModel):
    guests: int


class AskBudget(BaseModel):
    pass


class Host(RoutedAgent):
    @message_handler
    async def plan(self, message: Plan, ctx: MessageContext) -> str:
        return f"We serve {await self.send_message(message, AgentId('cook', 'default'))}."

    @message_handler
    async def budget(self, message: AskBudget, ctx: MessageContext) -> int:
        return 40


class Cook(RoutedAgent):
    @message_handler
    async def choose(self, message: Plan, ctx: MessageContext) -> str:
        budget = await self.send_message(AskBudget(), AgentId("host", "default"))  # the host is still waiting for us
        return "soup" if budget / message.guests < 10 else "roast"


async def test_the_host_answers_the_cook_while_it_waits_for_it() -> None:
    async with LocalRuntime() as runtime:
        await Host.register(runtime, "host", lambda: Host("hosts"))
        await Cook.register(runtime, "cook", lambda: Cook("cooks"))
        assert await runtime.send_message(Plan(guests=8), AgentId("host", "default")) == "We serve soup."
