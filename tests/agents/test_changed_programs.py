"""Calls that were stored by one version of a program, and are made by the next."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stagebell import LocalRuntime
from stagebell.agents.runs import Runs
from stagebell.messages.tool_calls import ErrorCode
from stagebell.testing import assert_trajectory
from stagebell.testing.trajectory import called, failed, finished
from stagebell.tools.tool import tool
from tests.support.loops import host_model, says, wants

pytestmark = pytest.mark.runtime


async def test_a_stored_call_whose_tool_has_changed_is_refused_by_name() -> None:
    """A parameter has another type now; the old call does not reach the tool, and the model is told why."""
    reached: list[Any] = []

    @tool(effects="none", name="reserve")
    async def before(count: int) -> None:
        """Reserve."""

    @tool(effects="none", name="reserve")
    async def after(count: list[str]) -> None:
        """Reserve."""
        reached.append(count)

    async with LocalRuntime() as old:
        await host_model(old, says(wants("reserve", count=3)), tools=[before])
        handle = await Runs(old).start("assistant", "go", conversation="c", paused=True)
        await handle.step()
        saved = json.loads(json.dumps(dict(await old.save_state())))
    async with LocalRuntime() as new:
        await host_model(new, says("I see"), tools=[after])
        await new.load_state({"assistant/c": saved["assistant/c"]})
        again = Runs(new).get(handle.run_id)
        await again.resume()
        await again.result()
        way = [
            called("reserve", count=3),
            failed("reserve", ErrorCode.INVALID_ARGUMENTS, containing="count: Input should be a valid list"),
            finished("I see"),
        ]
        assert_trajectory((await again.state()).conversation, way)
    assert reached == []
