"""What a handler raises reaches its caller: class, text and data."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import MessageContext
from autogen_core.tool_agent import ToolException, ToolNotFoundException

from stagebell.errors import StagebellError
from tests.support.agents import Ask, Doing, agent, host


class OutOfStock(Exception):
    """An application's own exception with data of its own."""

    def __init__(self, item: str, missing: int) -> None:
        super().__init__(f"{missing} of {item} are missing")
        self.item = item
        self.missing = missing


class Broke(StagebellError):
    """Derives from the product's root."""


def raising(error: BaseException) -> Any:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        raise error

    return ask


async def test_autogens_tool_exceptions_come_with_their_call(runtime: Any, start: Any) -> None:
    await host(runtime, "tool", raising(ToolNotFoundException(call_id="7", content="no such tool", name="add")))
    await start(runtime)
    with pytest.raises(ToolException) as caught:
        await runtime.send_message(Ask(), agent("tool"))
    error = caught.value
    assert isinstance(error, ToolNotFoundException)
    assert (error.call_id, error.content, error.name) == ("7", "no such tool", "add")
