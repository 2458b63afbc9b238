"""What is stored of agents: it can be written, what older programs wrote is read, and limits are those of a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_core import AgentId, FunctionCall
from pydantic import BaseModel, ConfigDict

from stagebell import LocalRuntime
from stagebell.agents.limits import Limits
from stagebell.agents.model_agent import ModelAgent
from stagebell.agents.runs import Runs
from stagebell.agents.state import read_state
from stagebell.messages.conversation import RunStatus
from stagebell.tools.agent import ToolAgent
from stagebell.tools.approvals import Approvals
from stagebell.tools.tool import tool
from tests.support.loops import host_model, run, says, sent, wants
from tests.support.waiting import eventually

pytestmark = pytest.mark.runtime

GOLDEN = Path(__file__).parents[1] / "golden" / "conversation.json"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


pay = tool(lambda: "paid", name="pay", effects="side", requires_approval=True)


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """In memory, started."""
    async with LocalRuntime() as runtime:
        yield runtime


async def test_the_state_of_every_agent_of_ours_is_json_and_comes_back(runtime: LocalRuntime) -> None:
    """A conversation that waits, a tool agent, and the desk with what waits there."""
    await host_model(runtime, says([wants("add", a=1, b=1), wants("pay")]), tools=[add, pay])
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [add]))
    handle = await Runs(runtime).start("assistant", "go", conversation="c")

    async def waits() -> bool:
        return await handle.status() is RunStatus.WAITING

    await eventually(waits)
    await runtime.send_message(FunctionCall("1", '{"a": 1, "b": 2}', "add"), AgentId("tools", "x"))
    saved = json.loads(json.dumps(dict(await runtime.save_state())))
    kinds = {key.partition("/")[0] for key in saved}
    assert {"assistant", "tools"} < kinds
    assert len(kinds) == 3
    async with LocalRuntime() as other:
        await host_model(other, says("done"), tools=[add, pay])
        await ToolAgent.register(other, "tools", lambda: ToolAgent("Tools.", [add]))
        await other.load_state(saved)
        assert json.loads(json.dumps(dict(await other.save_state()))) == saved
        (pending,) = await Approvals(other).list()
        await Approvals(other).approve(pending.request.id)
        assert (await asyncio.wait_for(Runs(other).get(handle.run_id).result(), 5)).output == "done"


async def test_a_conversation_that_version_1_has_stored_goes_on(runtime: LocalRuntime) -> None:
    """As it was written then; a later program that cannot read it has to bring a migration."""
    stored = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert (stored["type"], stored["version"]) == ("ModelAgent", 1)
    state = read_state("assistant/c", stored["state"])
    kinds = [entry.kind for entry in state.conversation]
    assert set(kinds) == {"asked", "decided", "returned", "corrected", "noted", "finished"}
    assert state.business == {"order": 7}
    model = says("and that is that")
    await host_model(runtime, model, tools=[add, pay])
    await runtime.load_state({"assistant/c": stored["state"]})
    handle = Runs(runtime).get("assistant/c#00000002")
    assert await handle.status() is RunStatus.WAITING
    await handle.answer("ask1", "the red one")
    assert (await asyncio.wait_for(handle.result(), 5)).output == "and that is that"
    assert "the red one" in sent(model)
    assert "order 7 is paid" in sent(model)


class Connected(BaseModel):
    """Facts, and what is none."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    order: int = 0
    lock: asyncio.Lock | None = None


class Calls(BaseModel):
    """The same."""

    notify: Callable[[], None] | None = None


@pytest.mark.parametrize("model", [Connected, Calls])
def test_facts_that_can_never_be_stored_are_refused_when_the_agent_is_made(model: Any) -> None:
    with pytest.raises(ValueError, match=rf"{model.__name__} cannot be a business section.*comes from `deps`"):
        ModelAgent(says(), business=model)


async def test_a_conversation_has_no_end_although_its_runs_have_limits(runtime: LocalRuntime) -> None:
    answers = [answer for n in range(12) for answer in (wants("add", a=n, b=1), f"answer {n}")]
    await host_model(runtime, says(*answers), tools=[add], limits=Limits(max_steps=2))
    for number in range(12):
        result = await run(runtime, f"task {number}")
        assert (result.status, result.output, result.steps) == ("succeeded", f"answer {number}", 2)
