"""The tools there are. A name that a model gives is looked up here and nowhere else, letter by letter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

from autogen_core.tools import BaseTool, Tool, ToolSchema, Workbench

from stagebell.errors import ToolRefused
from stagebell.tools.adapters import AutogenTool, WorkbenchTool
from stagebell.tools.tool import CallableTool, TypedTool, tool

DepsT = TypeVar("DepsT")
AnyTool: TypeAlias = TypedTool[DepsT] | BaseTool[Any, Any] | Workbench
"""What a toolset takes: tools of ours and of AutoGen's, and workbenches.

A plain function works too, as a tool that declares nothing; it has no place in this type, since a tool whose
dependencies are wrong would fit there, being callable.
"""


class Toolset(Generic[DepsT]):
    """A registry of tools.

    Args:
        tools: tools and workbenches; a function becomes a tool that declares nothing.

    Raises:
        ToolRefused: two tools have one name, or one of them cannot be a tool.
    """

    def __init__(self, tools: Iterable[AnyTool[DepsT]] = ()) -> None:
        self._tools: dict[str, TypedTool[DepsT]] = {}
        self._workbenches: list[Workbench] = []
        self._listed: set[str] = set()
        self._started: list[Workbench] = []
        self._preparing = asyncio.Lock()
        self._ready = True
        for each in tools:
            self.add(each)

    def add(self, given: AnyTool[DepsT] | Tool) -> None:
        """Register one more. Raises ToolRefused when its name is taken, or it cannot be a tool."""
        if isinstance(given, Workbench):
            self._workbenches.append(given)
            self._ready = False
        else:
            self._register(_as_tool(given))

    async def ready(self) -> None:
        """Start the workbenches, and list their tools; does nothing once that went well.

        Raises:
            ToolRefused: a workbench has a tool whose name is taken.
            Exception: whatever a workbench raised.
        """
        async with self._preparing:
            if self._ready:
                return
            for workbench in self._workbenches:
                if workbench not in self._started:
                    await workbench.start()
                    self._started.append(workbench)
            await self.refresh()
            self._ready = True

    @property
    def is_ready(self) -> bool:
        """True when the tools of all workbenches are known."""
        return self._ready

    async def refresh(self) -> None:
        """List the tools of the workbenches again. Raises ToolRefused as `ready` does."""
        for name in self._listed:
            del self._tools[name]
        self._listed.clear()
        for workbench in self._workbenches:
            for schema in await workbench.list_tools():
                self._register(WorkbenchTool(workbench, schema))
                self._listed.add(schema["name"])

    async def close(self) -> None:
        """Stop the workbenches that were started here."""
        self._ready = not self._workbenches
        while self._started:
            await self._started.pop().stop()

    def find(self, name: str) -> TypedTool[DepsT] | None:
        """The tool of exactly this name."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[TypedTool[DepsT]]:
        return iter(tuple(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> Sequence[str]:
        """The names, in the order of registration."""
        return tuple(self._tools)

    def schemas(self, visible: Callable[[TypedTool[DepsT]], bool] | None = None) -> list[ToolSchema]:
        """What a model is shown.

        Args:
            visible: leaves out the tools for which it is false; all by default.
        """
        return [each.schema for each in self if visible is None or visible(each)]

    def _register(self, tool: TypedTool[DepsT]) -> None:
        if tool.name in self._tools:
            raise ToolRefused(tool.name, "another tool of this name is registered here")
        self._tools[tool.name] = tool


def _as_tool(given: object) -> TypedTool[Any]:
    if _is_ours(given):
        return given
    if isinstance(given, Tool):
        return AutogenTool(given)
    if not callable(given):
        raise ToolRefused(repr(given)[:80], "it is no tool, no workbench and no function")
    made: CallableTool[Any] = tool(given)
    return made


def _is_ours(given: object) -> TypeGuard[TypedTool[Any]]:
    return isinstance(given, TypedTool)
