"""Checked by mypy and pyright, never run: agents, what their tools work with, and what their runs give.

A line that has to be an error is marked as one; a mark that is not needed is an error itself.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from stagebell import LocalRuntime, ModelAgent, RunContext, RunHandle, RunResult, Runs, agent_tool
from stagebell.testing import ScriptedModel
from stagebell.tools.context import ToolContext
from stagebell.tools.tool import tool


class Shop:
    name: str


class Bank:
    owner: str


class Invoice(BaseModel):
    cents: int


@tool(effects="none")
async def stock(context: ToolContext[Shop], item: str) -> int:
    return len(context.deps.name)


@tool(effects="none")
async def balance(context: ToolContext[Bank]) -> int:
    return len(context.deps.owner)


def shop(key: str) -> Shop:
    return Shop()


def check(output: Invoice, context: RunContext[Shop]) -> None:
    assert_type(context.deps, Shop)
    assert output.cents > 0


model = ScriptedModel([])
typed = ModelAgent(
    model,
    deps=shop,
    tools=[stock, agent_tool("other", description="…")],
    output_type=Invoice,
    output_validators=[check],
)
assert_type(typed, ModelAgent[Shop, Invoice])


def instruct(context: RunContext[Shop]) -> str:
    return context.deps.name


ModelAgent[Shop, Invoice](model, deps=shop, instructions=instruct, tools=[stock], output_type=Invoice)
ModelAgent[Shop, str](model, deps=shop, instructions=["Be brief.", instruct])


async def typed_runs(runs: Runs) -> None:
    handle = await runs.start("assistant", "x", output_type=Invoice)
    assert_type(handle, RunHandle[Invoice])
    assert_type(await handle.output(), Invoice)
    result = await handle.result()
    assert_type(result, RunResult[Invoice])
    assert_type(result.output, Invoice | None)
    assert_type((await runs.run("assistant", "x", output_type=Invoice)).output, Invoice | None)
    plain: RunHandle[Any] = await runs.start("assistant", "x")
    assert_type(await plain.output(), Any)


async def untyped(runtime: LocalRuntime) -> None:
    Runs(runtime)


def tools_that_want_other_dependencies_are_refused() -> None:
    ModelAgent[Shop, str](model, deps=shop, tools=[stock, balance])  # type: ignore[list-item]
    ModelAgent[Bank, Invoice](model, output_type=Invoice, output_validators=[check])  # type: ignore[list-item]
