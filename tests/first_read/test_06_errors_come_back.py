"""Every call ends: in its answer, in what the handler raised, or in an error that says what to do."""

import asyncio

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import LocalRuntime, errors

pytestmark = pytest.mark.runtime


class Divide(BaseModel):
    by: int


class Unheard(BaseModel):
    pass


class Calculator(RoutedAgent):
    @message_handler
    async def divide(self, message: Divide, ctx: MessageContext) -> float:
        return 1 / message.by


class Ring(RoutedAgent):
    """Calls its neighbour, after both have begun."""

    both = asyncio.Barrier(2)

    @message_handler
    async def on_divide(self, message: Divide, ctx: MessageContext) -> float:
        if message.by == 2:
            return 0.5
        await self.both.wait()
        neighbour = AgentId(self.id.type, "two" if self.id.key == "one" else "one")
        return float(await self.send_message(Divide(by=2), neighbour))


async def test_what_a_handler_raises_reaches_the_caller() -> None:
    async with LocalRuntime() as runtime:
        await Calculator.register(runtime, "calculator", lambda: Calculator("divides"))
        with pytest.raises(ZeroDivisionError):
            await runtime.send_message(Divide(by=0), AgentId("calculator", "default"))


async def test_a_call_nobody_can_answer_is_refused() -> None:
    async with LocalRuntime() as runtime:
        await Calculator.register(runtime, "calculator", lambda: Calculator("divides"))
        with pytest.raises(errors.CantHandle, match="add a method with @message_handler"):
            await runtime.send_message(Unheard(), AgentId("calculator", "default"))
        with pytest.raises(errors.Undeliverable, match="not registered"):
            await runtime.send_message(Divide(by=1), AgentId("abacus", "default"))


async def test_agents_that_would_wait_for_each_other_for_ever_are_told() -> None:
    async with LocalRuntime() as runtime:
        await Ring.register(runtime, "ring", lambda: Ring("waits"))
        calls = (runtime.send_message(Divide(by=1), AgentId("ring", key)) for key in ("one", "two"))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert any(isinstance(outcome, errors.CallCycleError) for outcome in outcomes)
