"""What a handler raises reaches its caller: class, text and data."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core.tool_agent import ToolException, ToolNotFoundException

from stagebell.testing.contract.failures import raising
from tests.support.agents import Ask, agent, host


async def test_autogens_tool_exceptions_come_with_their_call(runtime: Any, start: Any) -> None:
    await host(runtime, "tool", raising(ToolNotFoundException(call_id="7", content="no such tool", name="add")))
    await start(runtime)
    with pytest.raises(ToolException) as caught:
        await runtime.send_message(Ask(), agent("tool"))
    error = caught.value
    assert isinstance(error, ToolNotFoundException)
    assert (error.call_id, error.content, error.name) == ("7", "no such tool", "add")
