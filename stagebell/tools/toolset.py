"""The tools there are. A name that a model gives is looked up here and nowhere else, letter by letter.

What workbenches have may change while agents work with it. So it is listed again before a request to a model or a call,
when it was listed more than a second ago, and when a tool is asked for that is not there.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeGuard, TypeVar

from autogen_core.tools import BaseTool, Tool, ToolSchema, Workbench

from stagebell.errors import ToolRefused
from stagebell.tools.adapters import AutogenTool, WorkbenchTool
from stagebell.tools.containing import as_error, passes
from stagebell.tools.policy import text_of
from stagebell.tools.tool import CallableTool, TypedTool, tool

logger = logging.getLogger("stagebell")

_FRESH_FOR: Final = 1.0  # seconds
_PATIENCE: Final = 5.0  # seconds that a workbench whose tools are known may take to list them again
_PAUSE: Final = 10  # times as long as usual, before one that could not is asked again

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
        fresh_for: seconds after which workbenches list their tools again.

    Attributes:
        reserved: names that the model has for other agents and people, and no tool of a workbench may have.

    Raises:
        ToolRefused: two tools have one name, or one of them cannot be a tool.
    """

    def __init__(self, tools: Iterable[AnyTool[DepsT]] = (), *, fresh_for: float = _FRESH_FOR) -> None:
        self.reserved: Sequence[str] = ()
        self._own: dict[str, TypedTool[DepsT]] = {}
        self._tools = self._own  # those of workbenches too, once they were listed
        self._workbenches: list[Workbench] = []
        self._started: list[Workbench] = []
        self._preparing = asyncio.Lock()
        self._fresh_for = fresh_for
        self._fresh_until = math.inf
        self._patience = _PATIENCE
        self._listed: list[list[ToolSchema]] = []  # by each workbench, when it was asked last
        self._trouble: str = ""  # why one of them could not be asked again
        for each in tools:
            self.add(each)

    def add(self, given: AnyTool[DepsT] | Tool) -> None:
        """Register one more. Raises ToolRefused when its name is taken, or it cannot be a tool."""
        if isinstance(given, Workbench):
            self._workbenches.append(given)
            self._fresh_until = -math.inf
            return
        made = _as_tool(given)
        self._refuse_second(made.name, self._tools)
        self._tools[made.name] = self._own[made.name] = made

    @property
    def is_ready(self) -> bool:
        """True when the tools of all workbenches are known, and were listed not long ago."""
        return self._fresh_until == math.inf or monotonic() < self._fresh_until

    @property
    def can_change(self) -> bool:
        """True when there are workbenches, whose tools come and go."""
        return bool(self._workbenches)

    async def ready(self, *, anew: bool = False) -> None:
        """Start the workbenches and list their tools, where that was not done a moment ago.

        One that cannot list them any more keeps those that it had; that is logged, and it is asked again after a while.
        While somebody waits for that, others go on with the tools that are known.

        Args:
            anew: list them although it was done a moment ago.

        Raises:
            ToolRefused: a workbench has a tool whose name is taken.
            Exception: whatever a workbench raised when it was asked for the first time.
        """
        others_are_at_it = self._preparing.locked() and self._fresh_until != -math.inf
        if not self._workbenches or (others_are_at_it and not anew):
            return
        async with self._preparing:
            if self.is_ready and (not anew or self._trouble):
                return
            for workbench in self._workbenches:
                if workbench not in self._started:
                    await workbench.start()
                    self._started.append(workbench)
            if self._fresh_until == -math.inf:
                await self.refresh()
                trouble = ""
            else:
                trouble = await self._refresh_what_can_be()
            self._note(trouble)

    async def refresh(self) -> None:
        """List the tools of the workbenches. Raises what `ready` raises, and leaves all as it was then."""
        listed = [await workbench.list_tools() for workbench in self._workbenches]
        self._tools, self._listed = self._merged(listed), listed

    async def _refresh_what_can_be(self) -> str:
        """The same, but for those that cannot be asked now; why they cannot."""
        listed, trouble = list(self._listed), ""
        for at, workbench in enumerate(self._workbenches):
            try:
                listed[at] = await self._list_again(workbench)
            except BaseException as error:
                if passes(error):
                    raise
                trouble = text_of(as_error(error))
        try:
            self._tools, self._listed = self._merged(listed), listed
        except ToolRefused as error:
            trouble = str(error)
        return trouble

    async def _list_again(self, workbench: Workbench) -> list[ToolSchema]:
        """What a workbench has now; one that has lost whom it speaks to is started anew."""
        try:
            async with asyncio.timeout(self._patience):
                return await workbench.list_tools()
        except TimeoutError:
            raise  # it may be at a call
        except Exception as error:
            async with asyncio.timeout(self._patience):
                with suppress(Exception):
                    await workbench.stop()
                await workbench.start()
                listed = await workbench.list_tools()
            logger.warning("a workbench was started anew: %s", text_of(error))
            return listed

    def _merged(self, listed: Sequence[Sequence[ToolSchema]]) -> dict[str, TypedTool[DepsT]]:
        tools = dict(self._own)
        for workbench, schemas in zip(self._workbenches, listed, strict=True):
            for schema in schemas:
                self._refuse_second(schema["name"], tools)
                tools[schema["name"]] = WorkbenchTool(workbench, schema)
        return tools

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.warning("tools of workbenches stay as they were, they cannot be listed: %s", trouble)
        self._trouble = trouble
        self._fresh_until = monotonic() + self._fresh_for * (_PAUSE if trouble else 1)

    async def close(self) -> None:
        """Stop the workbenches that were started here."""
        self._fresh_until = -math.inf if self._workbenches else math.inf
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

    def _refuse_second(self, name: str, tools: Container[str]) -> None:
        if name in tools or name in self.reserved:
            raise ToolRefused(name, "another tool of this name is registered here")


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
