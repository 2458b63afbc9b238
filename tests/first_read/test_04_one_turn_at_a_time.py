"""An agent handles one message at a time, so its handlers need no locks, even where they await."""

import asyncio

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class Increment(BaseModel):
    pass


class Counter(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("counts without a lock")
        self.count = 0

    @message_handler
    async def increment(self, message: Increment, ctx: MessageContext) -> int:
        before = self.count
        await asyncio.sleep(0)  # others run here, but no other turn of this agent
        self.count = before + 1
        return self.count


async def test_no_update_is_lost() -> None:
    async with LocalRuntime() as runtime:
        await Counter.register(runtime, "counter", Counter)
        counter = AgentId("counter", "default")
        await asyncio.gather(*(runtime.send_message(Increment(), counter) for _ in range(100)))
        assert await runtime.send_message(Increment(), counter) == 101
