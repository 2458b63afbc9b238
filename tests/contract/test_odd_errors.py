"""Code that raises what ends those who await it, or is no `Exception`: nobody waits for ever, no other is hurt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId, FunctionCall, MessageContext
from autogen_core.tool_agent import ToolExecutionException

from stagebell.messages.conversation import RunStatus, TerminationReason
from stagebell.messages.tool_calls import ErrorCode
from stagebell.testing import ScriptedModel
from stagebell.tools.agent import ToolAgent
from stagebell.tools.approvals import Approvals
from stagebell.tools.tool import tool
from tests.support.agents import Ask, Counting, Doing, agent, host
from tests.support.loops import host_model, run, says, wants
from tests.support.waiting import eventually


class Odd(BaseException):
    """No `Exception`."""


async def raises_in_a_task() -> str:
    """Await a task that raises `GeneratorExit`."""

    async def work() -> str:
        await asyncio.sleep(0)
        raise GeneratorExit

    return await asyncio.create_task(work())


async def test_a_handler_gets_what_a_task_of_it_raised(runtime: Any, start: Any) -> None:
    """And may go on."""

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            return await raises_in_a_task()
        except RuntimeError as error:
            if message.text == "raise":
                raise
            await asyncio.sleep(0)
            return str(error)

    async def through(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.runtime.send_message(message, AgentId("odd", "inner"))

    await host(runtime, "odd", ask)
    await host(runtime, "through", through)
    await start(runtime)
    for text in ("raise", "go on"):
        call = asyncio.create_task(runtime.send_message(Ask(text=text), agent("through")))
        await asyncio.wait([call], timeout=5)
        error = call.exception() if call.done() else None
        assert "GeneratorExit" in repr(error or call.result())


async def test_a_tool_that_awaits_such_a_task(runtime: Any, start: Any) -> None:
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [tool(raises_in_a_task, name="odd")]))
    await start(runtime)
    call = asyncio.create_task(
        runtime.send_message(FunctionCall(id="1", name="odd", arguments="{}"), AgentId("tools", "t"))
    )
    await asyncio.wait([call], timeout=5)
    assert isinstance(call.exception(), ToolExecutionException | GeneratorExit)


@pytest.mark.parametrize("place", ["model", "instructions", "hooks", "tool", "update", "cost"])
async def test_a_run_ends_whatever_its_functions_raise(runtime: Any, start: Any, place: str) -> None:
    async def function(*_: Any) -> Any:
        return await raises_in_a_task()

    def at_once(*_: Any) -> Any:
        raise asyncio.CancelledError

    def fine() -> str:
        return "fine"

    model = ScriptedModel(function) if place == "model" else says(wants("fine"), "done")
    options: dict[str, Any] = {"tools": [tool(fine, effects="none")]}
    if place == "tool":
        options["tools"] = [tool(raises_in_a_task, name="fine", effects="none")]
    elif place in ("update", "cost"):
        options[place] = at_once
    elif place != "model":
        options[place] = [function] if place == "hooks" else function
    await host_model(runtime, model, **options)
    await start(runtime)
    result = await asyncio.wait_for(run(runtime), 10)
    if place == "tool":
        assert (result.status, result.output) == (RunStatus.SUCCEEDED, "done")
    else:
        assert result.status is RunStatus.FAILED
        assert result.reason in (TerminationReason.MODEL_ERROR, TerminationReason.FATAL_TOOL_ERROR)
        assert "GeneratorExit" in result.text or "CancelledError" in result.text


async def test_the_other_calls_of_a_group_keep_their_results(runtime: Any, start: Any) -> None:
    def fine(ask: bool) -> str:
        """Fine."""
        return "fine"

    async def agree(waits: int) -> None:
        for pending in await eventually(lambda: pending_of(runtime, waits), 10):
            await Approvals(runtime).approve(pending.request.id)

    tools = [tool(fine, effects="none", parallel_safe=True, requires_approval=lambda given: given["ask"])]
    tools.append(tool(raises_in_a_task, name="odd", effects="none", parallel_safe=True))
    model = says([wants("fine", ask=True), wants("odd"), wants("fine", ask=True)], "done")
    await host_model(runtime, model, tools=tools, on_error={ErrorCode.FATAL: "feed_back"})
    await start(runtime)
    running = asyncio.create_task(run(runtime))
    await agree(2)
    result = await asyncio.wait_for(running, 10)
    assert result.output == "done"
    state = await runtime.saved_states("assistant", "c")
    returned = [each["result"] for each in state["c"]["conversation"] if each["kind"] == "returned"]
    assert [each["value"] for each in returned if not each["is_error"]] == ["fine", "fine"]


async def pending_of(runtime: Any, count: int) -> Any:
    """What waits for a person, once it is so much."""
    found = await Approvals(runtime).list()
    return found if len(found) == count else None


@pytest.mark.parametrize("error", [Odd("boo"), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("place", ["factory", "save_state", "load_state"])
async def test_an_agent_whose_life_raises_such_a_thing(
    runtime: Any, start: Any, place: str, error: BaseException
) -> None:
    class Broken(Counting):
        def __init__(self) -> None:
            if place == "factory":
                raise error
            super().__init__()

        async def save_state(self) -> Any:
            if place == "save_state":
                raise error
            return await super().save_state()

        async def load_state(self, state: Any) -> None:
            raise error

    await Broken.register(runtime, "broken", Broken)
    await Counting.register(runtime, "counter", Counting)
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Ask(), AgentId("broken", "x")))
    await asyncio.wait([call], timeout=5)
    assert call.done()
    if place == "load_state":
        load = asyncio.create_task(runtime.agent_load_state(AgentId("broken", "x"), {"count": 1}))
        await asyncio.wait([load], timeout=5)
        assert load.done()
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("counter")), 5) == 1
