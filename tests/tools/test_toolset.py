"""The registry: explicit, letter by letter, each name once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolSchema
from hypothesis import given, settings
from hypothesis import strategies as st

from stagebell.errors import InvalidArguments, ToolError, ToolRefused
from stagebell.messages.tool_calls import ErrorCode
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import Strategy
from stagebell.tools.tool import tool
from stagebell.tools.toolset import Toolset
from tests.support.waiting import eventually
from tests.tools.executing import Bench

pytestmark = pytest.mark.unit

CONTEXT = ToolContext(None, "run", "1")


def double(number: int) -> int:
    return 2 * number


def third(number: int) -> float:
    return number / 3


def fail(number: int) -> int:
    raise LookupError("no such number")


async def test_functions_and_tools_of_autogen_work_unchanged() -> None:
    tools = Toolset[object]([tool(double, name="ours"), double, FunctionTool(double, "Doubles.", name="theirs")])
    assert tools.names == ("ours", "double", "theirs")
    found = [tools.find(name) for name in tools.names]
    assert [await each.run({"number": 2}, CONTEXT) for each in found if each] == [4, 4, "4"]
    assert [each.declares.strategy for each in tools] == [Strategy.UNDECLARED] * 3
    assert tools.schemas()[2] == FunctionTool(double, "Doubles.", name="theirs").schema
    theirs = tools.find("theirs")
    assert theirs is not None
    with pytest.raises(InvalidArguments, match="number"):
        theirs.validate({})


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ToolRefused, match="'double' is refused: another tool"):
        Toolset[object]([double, tool(double)])
    with pytest.raises(ToolRefused, match="no tool"):
        Toolset[object]([42])


@settings(deadline=None)
@given(st.text() | st.sampled_from(["os.system", "__class__", "Double", "double ", "_tools", "run", "builtins.exec"]))
def test_a_name_that_was_not_registered_is_not_found(name: str) -> None:
    tools = Toolset[object]([double])
    assert (tools.find(name) is not None) == (name == "double")


class Counted(StaticWorkbench):
    """Counts how often it is started and stopped."""

    started = stopped = 0

    async def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        self.stopped += 1


async def test_the_tools_of_a_workbench() -> None:
    workbench = Counted([FunctionTool(double, "Doubles."), FunctionTool(fail, "Fails.")])
    tools = Toolset[object]([tool(double, name="ours"), workbench])
    assert tools.names == ("ours",)
    await tools.ready()
    await tools.ready()
    assert tools.names == ("ours", "double", "fail")
    assert (workbench.started, workbench.stopped) == (1, 0)
    doubled, failing = tools.find("double"), tools.find("fail")
    assert doubled is not None
    assert failing is not None
    assert await doubled.run({"number": 2}, CONTEXT) == "4"
    with pytest.raises(ToolError, match="no such number"):
        await failing.run({"number": 2}, CONTEXT)
    with pytest.raises(InvalidArguments, match="number missing"):
        doubled.validate({})
    await tools.close()
    assert workbench.stopped == 1


async def test_a_workbench_is_started_once_by_those_who_come_together() -> None:
    workbench = Slow([FunctionTool(double, "Doubles.")])
    tools = Toolset[object]([workbench])
    await asyncio.gather(tools.ready(), tools.ready())
    assert (workbench.started, tools.names) == (1, ("double",))


class Slow(Counted):
    """Takes its time."""

    async def start(self) -> None:
        await super().start()
        await asyncio.sleep(0)


class Away(Counted):
    """Cannot be reached at first."""

    async def start(self) -> None:
        await super().start()
        if self.started == 1:
            raise ConnectionError("nobody listens")


async def test_a_workbench_that_is_away_holds_up_its_own_tools_alone() -> None:
    first, away = Counted([FunctionTool(fail, "Fails.")]), Away([FunctionTool(double, "Doubles.")])
    bench = Bench(tool(double, name="ours"), first, away)
    code, text = await bench.error("double", '{"number": 1}')
    assert code is ErrorCode.TRANSIENT
    assert "nobody listens" in text
    assert await bench.value("ours", '{"number": 1}') == 2
    assert await bench.value("double", '{"number": 1}') == "2"
    assert (first.started, away.started) == (1, 2)


async def test_two_workbenches_cannot_have_one_name() -> None:
    tools = Toolset[object]([double, StaticWorkbench([FunctionTool(double, "Doubles.")])])
    with pytest.raises(ToolRefused, match="double"):
        await tools.ready()


class Changing(StaticWorkbench):
    """Has another tool each time it is asked."""

    asked = 0

    async def list_tools(self) -> list[ToolSchema]:
        self.asked += 1
        return [ToolSchema(name=f"tool_{self.asked}", description="")]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> Any: ...


async def test_a_workbench_is_listed_again_on_demand() -> None:
    tools = Toolset[object]([Changing([])])
    await tools.ready()
    assert tools.names == ("tool_1",)
    await tools.refresh()
    assert tools.names == ("tool_2",)


class Moving(Counted):
    """Its tools come and go, and it can be out of reach."""

    away = hangs = False
    asked = 0

    async def list_tools(self) -> list[ToolSchema]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise ConnectionError("nobody listens")
        return await super().list_tools()

    def has(self, *tools: Any) -> None:
        self._tools = [FunctionTool(each, "Does it.") for each in tools]


async def test_tools_that_come_and_go_are_seen() -> None:
    moving = Moving([FunctionTool(double, "Doubles.")])
    tools = Toolset[object]([tool(double, name="ours"), moving], fresh_for=0)
    await tools.ready()
    assert tools.names == ("ours", "double")
    moving.has(fail)
    assert not tools.is_ready
    await tools.ready()
    assert tools.names == ("ours", "fail")
    assert moving.started == 1


async def test_what_was_listed_is_there_while_it_is_listed_again() -> None:
    moving = Moving([FunctionTool(double, "Doubles.")])
    tools = Toolset[object]([moving], fresh_for=0)
    await tools.ready()
    again = asyncio.ensure_future(tools.ready())
    await asyncio.sleep(0)
    assert not again.done()
    assert tools.find("double") is not None
    await again


async def test_what_was_listed_a_moment_ago_is_not_listed_again() -> None:
    moving = Moving([FunctionTool(double, "Doubles.")])
    bench = Bench(moving)
    bench.executor.tools._fresh_for = 60
    assert [await bench.value("double", '{"number": 1}') for _ in range(3)] == ["2"] * 3
    assert moving.asked == 1


async def test_a_workbench_that_went_away_keeps_the_tools_that_it_had(caplog: pytest.LogCaptureFixture) -> None:
    moving = Moving([FunctionTool(double, "Doubles.")])
    tools = Toolset[object]([moving], fresh_for=0)
    await tools.ready()
    moving.away = True
    await tools.ready()
    assert tools.names == ("double",)
    assert "nobody listens" in caplog.text
    moving.away = False
    moving.has(double, double)
    await tools.ready()
    assert tools.names == ("double",)
    assert "another tool of this name" in caplog.text


async def test_a_workbench_that_hangs_holds_up_one_caller_for_a_moment_and_no_other_workbench() -> None:
    moving, hanging = Moving([FunctionTool(double, "Doubles.")]), Moving([FunctionTool(fail, "Fails.")])
    tools = Toolset[object]([hanging, moving], fresh_for=0.01)
    await tools.ready()
    tools._patience = 0.2
    hanging.hangs = True
    moving.has(double, third)
    await eventually(lambda: not tools.is_ready)
    first = asyncio.ensure_future(tools.ready())
    await asyncio.sleep(0)
    await asyncio.wait_for(tools.ready(), 0.1)  # somebody else is at it
    assert tools.names == ("fail", "double")
    await asyncio.wait_for(first, 5)
    assert tools.names == ("fail", "double", "third")
    asked = hanging.asked
    await tools.ready(anew=True)  # not at once again
    assert hanging.asked == asked


async def test_a_tool_that_is_not_there_is_looked_for_once_more() -> None:
    moving = Moving([FunctionTool(double, "Doubles.")])
    bench = Bench(moving)
    bench.executor.tools._fresh_for = 60
    assert await bench.value("double", '{"number": 1}') == "2"
    moving.has(double, fail)
    assert (await bench.error("fail", '{"number": 1}'))[0] is ErrorCode.BUSINESS
    code, text = await bench.error("os.system")
    assert code is ErrorCode.UNKNOWN_TOOL
    assert "there are: double, fail" in text
    moving.away = True
    assert (await bench.error("os.system"))[0] is ErrorCode.UNKNOWN_TOOL


def test_the_tools_that_a_model_sees_can_be_chosen() -> None:
    tools = Toolset[object]([double, fail])
    assert [schema["name"] for schema in tools.schemas(lambda each: each.name != "fail")] == ["double"]
