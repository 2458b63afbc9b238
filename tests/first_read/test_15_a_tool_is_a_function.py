"""A typed function is a tool: calls come as messages, are checked, and end in a result or a reason."""

from typing import Annotated

import pytest
from autogen_core import AgentId, FunctionCall
from autogen_core.tool_agent import InvalidToolArgumentsException, ToolNotFoundException
from pydantic import Field

from stagebell import LocalRuntime, ToolAgent, ToolContext, tool

pytestmark = pytest.mark.runtime

SHELVES = AgentId("tools", "default")


@tool(effects="none")
async def in_stock(context: ToolContext[dict[str, int]], item: str, least: Annotated[int, Field(ge=1)] = 1) -> bool:
    """Whether there is enough of something."""
    return context.deps.get(item, 0) >= least


async def test_calls_are_checked_and_answered() -> None:
    async with LocalRuntime() as runtime:
        await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Looks.", [in_stock], deps={"tea": 3}))
        result = await runtime.send_message(FunctionCall("1", '{"item": "tea", "least": 2}', "in_stock"), SHELVES)
        assert result.content == "true"
        with pytest.raises(InvalidToolArgumentsException, match="greater than or equal to 1"):
            await runtime.send_message(FunctionCall("2", '{"item": "tea", "least": 0}', "in_stock"), SHELVES)
        with pytest.raises(ToolNotFoundException, match="there are: in_stock"):
            await runtime.send_message(FunctionCall("3", "{}", "os.system"), SHELVES)


def test_the_signature_is_what_a_model_is_shown() -> None:
    parameters = in_stock.schema["parameters"]
    assert parameters["properties"]["least"] == {"default": 1, "minimum": 1, "type": "integer"}
    assert parameters["required"] == ["item"]
