"""A tool that needs a person's agreement waits for it, and nobody has to be there meanwhile."""

import asyncio

import pytest
from autogen_core import AgentId, FunctionCall

from stagebell import Approvals, LocalRuntime, ToolAgent, tool

pytestmark = pytest.mark.runtime


@tool(effects="side", requires_approval=lambda given: given["guests"] > 8)
async def book(guests: int) -> str:
    """Book a table."""
    return f"a table for {guests}"


async def test_a_large_table_is_booked_when_somebody_agrees() -> None:
    async with LocalRuntime() as runtime:
        await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Books.", [book]), approvals=True)
        call = FunctionCall("1", '{"guests": 20}', "book")
        booking = asyncio.create_task(runtime.send_message(call, AgentId("tools", "default")))
        approvals = Approvals(runtime)
        while not (waiting := await approvals.list()):
            await asyncio.sleep(0)
        await approvals.edit(waiting[0].request.id, {"guests": 12}, by="Ann")
        assert (await booking).content == "a table for 12"
        assert await approvals.list() == []
