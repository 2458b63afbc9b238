"""Somebody cancels a run that is not the one which goes on: that one is interrupted, and goes on nevertheless."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId

from stagebell.agents.messages import CancelRun, InspectRun, Task
from stagebell.agents.runs import Runs
from stagebell.errors import UnknownRun
from stagebell.messages.conversation import RunResult
from stagebell.messages.tool_calls import ErrorCode
from stagebell.testing import ScriptedModel
from tests.support.loops import host_model, wants

AGENT = AgentId("assistant", "c")
UNKNOWN = "assistant/c#00000000"


async def cancel(runtime: Any, run_id: str) -> None:
    await asyncio.wait_for(runtime.send_message(CancelRun(run_id=run_id), AGENT), 10)


async def test_a_request_to_the_model_is_made_again_when_an_unknown_run_is_cancelled(runtime: Any, start: Any) -> None:
    asked = asyncio.Event()
    answers = 0

    async def answer(*_: Any) -> str:
        nonlocal answers
        asked.set()
        await asyncio.sleep(0.2)
        answers += 1
        return "done"

    await host_model(runtime, ScriptedModel(answer))
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Task(content="do it"), AGENT))
    await asyncio.wait_for(asked.wait(), 5)
    with pytest.raises(UnknownRun):
        await cancel(runtime, UNKNOWN)
    result: RunResult = await asyncio.wait_for(call, 10)  # nobody has to ask how it stands
    assert (result.output, answers) == ("done", 1)


@pytest.mark.parametrize("which", ["unknown", "queued"])
async def test_a_call_that_was_cut_off_is_not_made_blindly_again(runtime: Any, start: Any, which: str) -> None:
    charged: list[int] = []
    begun = asyncio.Event()

    async def charge(cents: int) -> str:
        """Charge, and say nothing of it."""
        charged.append(cents)
        begun.set()
        await asyncio.sleep(0.3)
        return "charged"

    def answer(messages: Any, tools: Any) -> Any:
        said = str(messages[-1].content)
        return [wants("charge", cents=5)] if said == "charge" else "I do not know."

    policy = {ErrorCode.OUTCOME_UNKNOWN: "feed_back"}
    await host_model(runtime, ScriptedModel(answer), tools=[charge], on_error=policy)
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Task(content="charge"), AGENT))
    queued = asyncio.create_task(Runs(runtime).start("assistant", "another", conversation="c"))
    await asyncio.wait_for(begun.wait(), 5)
    if which == "queued":
        await cancel(runtime, (await asyncio.wait_for(queued, 10)).run_id)
    else:
        with pytest.raises(UnknownRun):
            await cancel(runtime, UNKNOWN)
    result: RunResult = await asyncio.wait_for(call, 10)
    assert charged == [5]
    assert result.output == "I do not know."
    assert (await runtime.send_message(InspectRun(run_id=result.run_id), AGENT)).status == "succeeded"
