"""Tools of a workbench that come while a run goes on."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import AgentId
from autogen_core.tools import FunctionTool, StaticWorkbench

from stagebell import LocalRuntime, agent_tool
from stagebell.agents.model_agent import ModelAgent
from stagebell.agents.runs import Runs
from tests.support.loops import host_model, results, run, says, sent, wants

pytestmark = pytest.mark.runtime


def add(a: int, b: int) -> int:
    return a + b


def subtract(a: int, b: int) -> int:
    return a - b


class Growing(StaticWorkbench):
    """Has another tool once the first was called."""

    async def call_tool(self, *args: Any, **options: Any) -> Any:
        self._tools = [FunctionTool(add, "Adds."), FunctionTool(subtract, "Subtracts.")]
        return await super().call_tool(*args, **options)


async def test_a_name_that_is_not_there_is_told_with_all_that_are() -> None:
    """Other agents and people are among them; a workbench cannot take their names."""
    model = says(wants("halp", task="x"), "done")
    tools = [add, agent_tool("help", description="…")]
    async with LocalRuntime() as runtime:
        await host_model(runtime, model, tools=tools, ask_person=True)
        result = await run(runtime)
        explanation = await Runs(runtime).get(result.run_id).explain()
        assert [(call.tool, call.verdict) for call in explanation.calls] == [("halp", "wrong_tool")]
        assert "there are: add, help, ask_person" in sent(model)
    taken = StaticWorkbench([FunctionTool(add, "Adds.", name="help")])
    async with LocalRuntime() as runtime:
        await host_model(runtime, says("x"), tools=[*tools, taken])
        assert "'help' is refused" in (await run(runtime)).text


async def test_a_tool_that_a_workbench_gets_is_shown_to_the_model() -> None:
    model = says(wants("add", a=1, b=1), wants("subtract", a=3, b=1), "done")
    async with LocalRuntime() as runtime:
        await host_model(runtime, model, tools=[Growing([FunctionTool(add, "Adds.")])])
        agent = await runtime.try_get_underlying_agent_instance(AgentId("assistant", "c"), ModelAgent)
        agent.toolset._fresh_for = 0
        result = await run(runtime)
        shown = [[tool["name"] for tool in request.tools] for request in model.requests]
        assert shown == [["add"], ["add", "subtract"], ["add", "subtract"]]
        assert results((await Runs(runtime).get(result.run_id).state()).conversation) == ["2", "2"]
