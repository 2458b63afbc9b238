"""A token cancels a call and all calls made for it, also where a handler did not pass the token on."""

import asyncio

import pytest
from autogen_core import AgentId, CancellationToken, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class Research(BaseModel):
    question: str


class Chief(RoutedAgent):
    @message_handler
    async def delegate(self, message: Research, ctx: MessageContext) -> str:
        return str(await self.send_message(message, AgentId("researcher", "default")))


class Researcher(RoutedAgent):
    def __init__(self, begun: asyncio.Event, cancelled: asyncio.Event) -> None:
        super().__init__("never finds it")
        self.begun, self.cancelled = begun, cancelled

    @message_handler
    async def search(self, message: Research, ctx: MessageContext) -> str:
        self.begun.set()
        try:
            return await asyncio.Future()
        finally:
            if ctx.cancellation_token.is_cancelled():
                self.cancelled.set()


async def test_the_whole_chain_is_cancelled() -> None:
    begun, cancelled, token = asyncio.Event(), asyncio.Event(), CancellationToken()
    async with LocalRuntime(cancel_grace=0.05) as runtime:
        await Chief.register(runtime, "chief", lambda: Chief("delegates"))
        await Researcher.register(runtime, "researcher", lambda: Researcher(begun, cancelled))
        question = Research(question="why?")
        call = asyncio.create_task(
            runtime.send_message(question, AgentId("chief", "default"), cancellation_token=token)
        )
        await begun.wait()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(cancelled.wait(), 2)
