"""Tools that return or raise what cannot travel: their calls are answered all the same, and had one effect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId, FunctionCall
from autogen_core.tool_agent import ToolExecutionException

from stagebell.tools.agent import ToolAgent
from stagebell.tools.tool import tool

effects: list[str] = []


class Odd(BaseException):
    """No `Exception`."""


@tool(effects="idempotent")
async def halves() -> dict[str, str]:
    effects.append("halves")
    return {"k\ud800": "a\ud800b"}


@tool(effects="idempotent")
async def ratio() -> list[float]:
    effects.append("ratio")
    return [0.5, float("nan")]


@tool(effects="idempotent")
async def odd() -> None:
    effects.append("odd")
    raise Odd


@tool(effects="idempotent")
def stops() -> None:
    effects.append("stops")
    raise StopIteration


async def ask(runtime: Any, name: str) -> str:
    message = FunctionCall(id="1", name=name, arguments="{}")
    return str((await asyncio.wait_for(runtime.send_message(message, AgentId("tools", "one")), 10)).content)


async def test_calls_of_odd_tools_are_answered(runtime: Any, start: Any) -> None:
    effects.clear()
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [halves, ratio, odd, stops]))
    runtime = await start(runtime)
    answer = await ask(runtime, "halves")
    answer.encode()
    assert "k\\\\ud800" in answer
    for name, text in (("ratio", r"\[1\] is a float \(nan\)"), ("odd", "Odd"), ("stops", "StopIteration")):
        with pytest.raises(ToolExecutionException, match=text):
            await ask(runtime, name)
    assert effects == ["halves", "ratio", "odd", "stops"]
