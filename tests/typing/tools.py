"""Checked by mypy and pyright, never run: tools and the dependencies they want.

A line that has to be an error is marked as one; a mark that is not needed is an error itself.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import assert_type

from autogen_core.tools import Tool

from stagebell.tools.agent import ToolAgent
from stagebell.tools.context import ToolContext
from stagebell.tools.tool import TypedTool, tool
from stagebell.tools.toolset import Toolset


class Shop:
    name: str


class Bank:
    owner: str


@tool
async def price(item: str, count: int = 1) -> float:
    return 1.0 * count


@tool(effects="none", timeout=1.0)
async def stock(context: ToolContext[Shop], item: str) -> int:
    return len(context.deps.name)


@tool(effects="none")
def balance(context: ToolContext[Bank]) -> int:
    return len(context.deps.owner)


async def tools_keep_the_types_of_their_functions(context: ToolContext[Shop]) -> None:
    assert_type(await price("tea", count=2), float)
    assert_type(await stock(context, "tea"), int)
    await price(1)  # type: ignore[arg-type]
    await stock(context)  # type: ignore[call-arg]
    balance(context)  # type: ignore[arg-type]
    wants_a_tool_of_autogens(price)


def wants_a_tool_of_autogens(tool: Tool) -> None: ...


def tools_go_with_their_dependencies() -> None:
    first: list[TypedTool[Shop]] = [price, stock]
    Toolset[Shop]([price, stock])
    second: list[TypedTool[Shop]] = [price, balance]  # type: ignore[list-item]
    assert first != second
    Toolset[Shop]([price, balance])  # type: ignore[list-item]


def options_have_their_types(function: Callable[[], Awaitable[int]]) -> None:
    tool(function, timeout="1")  # type: ignore[call-overload]
    tool(function, effect="none")  # type: ignore[call-overload]


def an_agent_has_tools_of_its_dependencies() -> None:
    assert_type(ToolAgent("Tools.", [price, stock], deps=Shop()), ToolAgent[Shop])
    assert_type(ToolAgent("Tools.", [price]), ToolAgent[None])
    ToolAgent("Tools.", [price, balance], deps=Shop())  # type: ignore[list-item]
    ToolAgent("Tools.", [stock])  # type: ignore[list-item]
