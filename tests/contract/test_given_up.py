"""The caller of a call whose reply was put off waits no more: its agent hears, and takes back what it asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId, CancellationToken, FunctionCall, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import DeferredReply, deadline, defer_reply
from stagebell.agents.runs import Runs
from stagebell.errors import AlreadyAnswered, AlreadyDecided, DeadlineExceeded
from stagebell.messages.conversation import RunStatus
from stagebell.tools.agent import ToolAgent
from stagebell.tools.approvals import Approvals
from stagebell.tools.tool import tool
from tests.support.agents import Answer, Ask, Doing, agent, host
from tests.support.loops import host_model, says, wants
from tests.support.waiting import eventually

HEARD: list[str] = []


class Gone(BaseModel):
    """Nobody waits for this any more."""

    text: str


class Release(BaseModel):
    handle: DeferredReply


class Clerk(RoutedAgent):
    """Puts every reply off."""

    def __init__(self) -> None:
        super().__init__("a clerk")

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> Answer | None:
        HANDLES.append(defer_reply(if_given_up=Gone(text=message.text)))
        return None

    @message_handler
    async def on_gone(self, message: Gone, ctx: MessageContext) -> None:
        HEARD.append(f"{self.id} {message.text}")

    @message_handler
    async def on_release(self, message: Release, ctx: MessageContext) -> Answer:
        await message.handle.answer(Answer(text="at last"))
        return Answer(text="released")


HANDLES: list[DeferredReply] = []
CLERK = AgentId("clerk", "c")


@pytest.fixture
async def office(runtime: Any, start: Any) -> Any:
    """A runtime with a clerk."""
    HEARD.clear()
    HANDLES.clear()
    await Clerk.register(runtime, "clerk", Clerk)
    await start(runtime)
    return runtime


async def put_off(office: Any, text: str, **options: Any) -> asyncio.Task[Any]:
    """A call that waits."""
    already = len(HANDLES)
    call = asyncio.create_task(office.send_message(Ask(text=text), CLERK, **options))
    await eventually(lambda: len(HANDLES) > already)
    return call


@pytest.mark.parametrize("by", ["token", "task", "deadline"])
async def test_the_agent_hears_when_its_caller_waits_no_more(office: Any, by: str) -> None:
    token = CancellationToken()
    if by == "deadline":
        with pytest.raises(DeadlineExceeded), deadline(0.3):
            await office.send_message(Ask(text="a"), CLERK)
    else:
        call = await put_off(office, "a", cancellation_token=token)
        token.cancel() if by == "token" else call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 5)
    await eventually(lambda: HEARD == ["clerk/c a"])
    with pytest.raises(AlreadyAnswered):
        await office.send_message(Release(handle=HANDLES[0]), CLERK)


async def test_it_hears_when_a_turn_gives_its_call_up(office: Any) -> None:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            async with asyncio.timeout(0.3):
                return (await agent.runtime.send_message(Ask(text="t"), CLERK)).text
        except TimeoutError:
            return "in time"

    await host(office, "asker", ask)
    assert await asyncio.wait_for(office.send_message(Ask(), agent("asker")), 5) == "in time"
    await eventually(lambda: HEARD == ["clerk/c t"])


async def test_of_a_call_that_is_answered_it_hears_nothing(office: Any) -> None:
    call = await put_off(office, "a")
    await office.send_message(Release(handle=HANDLES[0]), CLERK)
    assert (await call).text == "at last"
    other = await put_off(office, "b")
    other.cancel()
    await eventually(lambda: HEARD == ["clerk/c b"])


async def waits_for_a_person(runtime: Any) -> str:
    """The id of the only call that does."""
    (pending,) = await eventually(Approvals(runtime).list, 10)
    found: str = pending.request.id
    return found


async def is_withdrawn(runtime: Any, id: str) -> None:
    """The desk does not list it, and it cannot be decided about."""

    async def nothing_waits() -> bool:
        return not await Approvals(runtime).list()

    await eventually(nothing_waits, 10)
    with pytest.raises(AlreadyDecided, match="withdrawn"):
        await Approvals(runtime).approve(id)


def pay(cents: int) -> str:
    """Pay."""
    HEARD.append("paid")
    return "paid"


async def test_a_call_of_a_tool_that_is_given_up_is_withdrawn(runtime: Any, start: Any) -> None:
    HEARD.clear()
    tools = [tool(pay, requires_approval=True)]
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", tools), approvals=True)
    await start(runtime)
    message = FunctionCall(id="1", name="pay", arguments='{"cents": 1}')
    call = asyncio.create_task(runtime.send_message(message, AgentId("tools", "t")))
    id = await waits_for_a_person(runtime)
    call.cancel()
    await is_withdrawn(runtime, id)
    assert HEARD == []


async def test_a_run_that_is_cancelled_withdraws_what_it_asked_for(runtime: Any, start: Any) -> None:
    HEARD.clear()
    await host_model(runtime, says(wants("pay", cents=1)), tools=[tool(pay, requires_approval=True)])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "pay")
    id = await waits_for_a_person(runtime)
    assert await handle.cancel() is RunStatus.CANCELLED
    await is_withdrawn(runtime, id)
    assert HEARD == []
