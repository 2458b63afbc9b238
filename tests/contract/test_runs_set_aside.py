"""A step that was set aside ends its run with a word, and nobody who looks at the run lets it be tried again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from autogen_core import AgentId, FunctionCall
from autogen_core.models import FunctionExecutionResult
from autogen_core.tool_agent import ToolExecutionException

from stagebell import Publisher
from stagebell.agents.messages import Task
from stagebell.agents.runs import Runs
from stagebell.errors import RuntimeNotRunning
from stagebell.messages.conversation import RunResult, RunStatus, TerminationReason
from stagebell.testing import ScriptedModel, crash
from stagebell.tools.agent import ToolAgent
from stagebell.tools.approvals import Approvals
from stagebell.tools.tool import tool
from tests.support.loops import host_model
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs(publishes_at_once=False)

_LEASE = 0.4


class Deadly:
    """A model that kills every worker that asks it."""

    def __init__(self) -> None:
        self.asked = 0
        self.runtime: Any = None
        self.killed = asyncio.Event()

    def model(self) -> ScriptedModel:
        async def answer(messages: Any, tools: Any) -> Any:
            self.asked += 1
            self.killed.set()
            await crash(self.runtime)
            await asyncio.Event().wait()

        return ScriptedModel(answer)

    async def look(self) -> str:
        """A tool that does the same."""
        self.killed.set()
        await crash(self.runtime)
        return "never"

    async def worker(self, make_runtime: Any, start: Any) -> Any:
        self.killed.clear()
        self.runtime = make_runtime(server_lease=_LEASE, server_partitions=1)
        await host_model(self.runtime, self.model)
        look = tool(self.look, effects="none", requires_approval=True)
        await ToolAgent.register(self.runtime, "tools", lambda: ToolAgent("Tools.", [look]), approvals=True)
        with suppress(RuntimeNotRunning):  # it may be killed before it has started
            await start(self.runtime)
        return self.runtime

    async def kills(self, make_runtime: Any, start: Any, until: asyncio.Future[Any]) -> None:
        """Start a new worker whenever one was killed, until this is done."""
        while not until.done():
            killed = asyncio.ensure_future(self.killed.wait())
            done, _ = await asyncio.wait([killed, until], timeout=20, return_when=asyncio.FIRST_COMPLETED)
            assert done, "nothing happens any more"
            killed.cancel()
            if not until.done():
                await self.worker(make_runtime, start)


async def test_a_caller_gets_the_result_of_a_run_whose_step_kills_its_workers(make_runtime: Any, start: Any) -> None:
    deadly = Deadly()
    first = await deadly.worker(make_runtime, start)
    async with Publisher(first._url, namespace=first._namespace) as publisher:
        Runs(publisher)
        called = asyncio.create_task(publisher.call(Task(content="x"), AgentId("assistant", "c")))
        await deadly.kills(make_runtime, start, called)
        result: RunResult = called.result()
        assert (result.status, result.reason) == (RunStatus.FAILED, TerminationReason.SET_ASIDE)
        assert "4 times its worker died" in result.text
        assert deadly.asked in (4, 5)  # the first death may come before anybody has counted


async def test_who_looks_at_such_a_run_does_not_let_it_be_tried_again(make_runtime: Any, start: Any) -> None:
    """Neither while it is tried, by messages that wait behind the step or before it, nor when it has ended."""
    deadly = Deadly()
    first = await deadly.worker(make_runtime, start)
    async with Publisher(first._url, namespace=first._namespace) as publisher:
        handle = await Runs(publisher).start("assistant", "x", conversation="c")
        looks = [asyncio.ensure_future(each) for each in (handle.result(), handle.state(), anext(handle.events(1)))]
        await deadly.kills(make_runtime, start, looks[0])
        asked = deadly.asked
        assert (await asyncio.wait_for(handle.result(), 10)).reason is TerminationReason.SET_ASIDE
        assert await handle.status() is RunStatus.FAILED
        assert [each.entry.kind async for each in handle.events()] == ["asked", "finished"]
        await asyncio.wait_for(asyncio.wait(looks), 10)
        assert deadly.asked == asked <= 5


async def test_a_call_that_a_person_agreed_to_and_that_kills_its_workers(make_runtime: Any, start: Any) -> None:
    deadly = Deadly()
    first = await deadly.worker(make_runtime, start)
    async with Publisher(first._url, namespace=first._namespace) as publisher:
        publisher.register(FunctionExecutionResult)
        call = FunctionCall(id="1", name="look", arguments="{}")
        called = asyncio.create_task(publisher.call(call, AgentId("tools", "t")))
        (pending,) = await eventually(Approvals(publisher).list, 10)
        await Approvals(publisher).approve(pending.request.id)
        await deadly.kills(make_runtime, start, called)
        with pytest.raises(ToolExecutionException, match="4 times its worker died") as raised:
            called.result()
        assert vars(raised.value)["code"] == "outcome_unknown"
