"""What can be said of a model agent, each in one run in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import AgentId, CancellationToken
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from pydantic import BaseModel

from stagebell import LocalRuntime
from stagebell.agents.context import RunContext, current_run
from stagebell.agents.limits import Limits
from stagebell.agents.model_agent import ModelAgent
from stagebell.agents.runs import Runs
from stagebell.errors import ToolRefused
from stagebell.messages.conversation import RunStatus, TerminationReason
from stagebell.messages.tool_calls import ErrorCode
from stagebell.testing import ScriptedModel, capture_messages, override
from stagebell.tools.context import ToolContext
from stagebell.tools.lifecycle import Step, ToolEvent
from stagebell.tools.tool import tool
from tests.support.loops import host_model, results, run, says, sent, wants

pytestmark = pytest.mark.runtime


class Shop:
    """What tools work with."""

    def __init__(self, password: str) -> None:
        self.password = password


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """In memory, started."""
    async with LocalRuntime() as runtime:
        yield runtime


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_an_agent_without_any_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing would end"):
        ModelAgent(says(), limits=Limits(max_steps=None))


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolRefused, match="add"):
        ModelAgent(says(), tools=[add, add])


async def test_instructions_are_put_together_in_one_place(runtime: LocalRuntime) -> None:
    async def who(context: RunContext[Any]) -> str:
        return f"You speak to {context.deps_key}, step {context.step}."

    model = await host_model(
        runtime, says(wants("add", a=1, b=1), "2"), instructions=["Be brief.", who], tools=[add], output_type=int
    )
    await run(runtime, deps_key="Ada")
    first, second = (request.messages[0].content for request in model.requests)
    assert first.startswith("Be brief.\n\nYou speak to Ada, step 0.\n\nGive your final answer as JSON")
    assert "step 1" in second


async def test_a_tool_hidden_in_a_step_is_not_shown_and_not_run(runtime: LocalRuntime) -> None:
    def tools_for(context: RunContext[Any]) -> set[str] | None:
        return None if context.step == 0 else {"other"}

    def other() -> None:
        """Do nothing."""

    model = await host_model(
        runtime,
        says(wants("add", a=1, b=1), wants("add", a=2, b=2), "done"),
        tools=[add, other],
        tools_for_step=tools_for,
    )
    result = await run(runtime)
    shown = [[tool["name"] for tool in request.tools] for request in model.requests]
    assert shown == [["add", "other"], ["other"], ["other"]]
    state = await Runs(runtime).get(result.run_id).state()
    assert results(state.conversation) == [2, "denied"]


async def test_dependencies_come_from_a_factory_and_go_nowhere(runtime: LocalRuntime) -> None:
    made: list[str] = []

    def shop(key: str) -> Shop:
        made.append(key)
        return Shop(f"secret-of-{key}")

    @tool(effects="none")
    async def look(context: ToolContext[Shop]) -> int:
        """Look."""
        inside = await asyncio.create_task(run_of_the_code())
        assert inside == context.run_id
        return len(context.deps.password)

    async def run_of_the_code() -> str:
        context = current_run.get()
        return "" if context is None else context.run_id

    model = says([wants("look"), wants("look")], wants("look"), "done")
    await host_model(runtime, model, tools=[look], deps=shop)
    await run(runtime, deps_key="k")
    assert made == ["k"]
    assert "secret" not in json.dumps(dict(await runtime.save_state()))
    assert "secret" not in str(model.requests)
    assert current_run.get() is None


async def test_a_factory_that_fails_ends_the_run(runtime: LocalRuntime) -> None:
    def broken(key: str) -> None:
        raise OSError("no database")

    await host_model(runtime, says("x"), deps=broken)
    result = await run(runtime)
    assert (result.status, result.reason) == ("failed", "model_error")
    assert "no database" in result.text


async def test_dependencies_and_model_are_replaced_for_a_while(runtime: LocalRuntime) -> None:
    @tool(effects="none")
    async def who(context: ToolContext[str]) -> str:
        """Who."""
        return context.deps

    own = await host_model(runtime, says("own"), tools=[who], deps=lambda key: "real")
    with override("assistant", model=says(wants("who"), "stood in"), deps="fake"), capture_messages() as exchanges:
        result = await run(runtime, key="a")
    assert result.output == "stood in"
    assert "fake" in str(exchanges[-1].messages)
    assert not own.requests
    assert (await run(runtime, key="b")).output == "own"


async def test_a_failed_request_is_made_again_and_then_no_more(runtime: LocalRuntime) -> None:
    failures = [ConnectionError("down"), None, ConnectionError("down"), ConnectionError("down")]

    def script(messages: Any, tools: Any) -> str:
        error = failures.pop(0)
        if error is not None:
            raise error
        return "up"

    await host_model(runtime, ScriptedModel(script), limits=Limits(model_retries=1))
    assert (await run(runtime)).output == "up"
    result = await run(runtime)
    assert (result.reason, failures) == (TerminationReason.MODEL_ERROR, [])
    assert "down" in result.text


async def test_a_request_takes_no_longer_than_it_may(runtime: LocalRuntime) -> None:
    async def script(messages: Any, tools: Any) -> str:
        await asyncio.Event().wait()
        return ""

    before = asyncio.all_tasks()
    limits = Limits(model_retries=0)
    await host_model(runtime, ScriptedModel(script), request_timeout=0.05, limits=limits)
    result = await run(runtime)
    assert "within 0.05 seconds" in result.text
    assert asyncio.all_tasks() == before


async def test_hooks_stand_around_each_request(runtime: LocalRuntime) -> None:
    seen: list[str] = []

    async def outer(request: Any, context: Any, send: Any) -> CreateResult:
        seen.append(f"before {context.step}")
        answer: CreateResult = await send(
            request.changed(messages=[*request.messages, UserMessage(content="and be quick", source="hook")])
        )
        seen.append(f"after {context.step}")
        return answer

    async def inner(request: Any, context: Any, send: Any) -> CreateResult:
        assert request.messages[-1].content == "and be quick"
        answer: CreateResult = await send(request)
        return answer

    model = await host_model(runtime, says(wants("add", a=1, b=1), "2"), tools=[add], hooks=[outer, inner])
    await run(runtime)
    assert seen == ["before 0", "after 0", "before 1", "after 1"]
    assert "be quick" in sent(model)
    assert len(model.requests) == 2


async def test_each_step_of_a_call_is_told(runtime: LocalRuntime) -> None:
    told: list[ToolEvent] = []
    model = says([wants("add", a=1, b=1), wants("nowhere")], "2")
    await host_model(runtime, model, tools=[add], on_tool_event=told.append)
    result = await run(runtime)
    steps = {name: [each for each in told if each.tool == name] for name in ("add", "nowhere")}
    assert [each.step for each in steps["add"]] == list(Step)
    assert [(each.step, each.code) for each in steps["nowhere"]][1:] == [
        (Step.FIND, ErrorCode.UNKNOWN_TOOL),
        (Step.ANSWER, ErrorCode.UNKNOWN_TOOL),
    ]
    assert {each.run_id for each in told} == {result.run_id}


async def test_usage_and_cost_are_summed_up_and_bounded(runtime: LocalRuntime) -> None:
    def answer(messages: Any, tools: Any) -> CreateResult:
        usage = RequestUsage(prompt_tokens=100, completion_tokens=10)
        content = [wants("add", a=len(messages), b=1)]
        return CreateResult(finish_reason="function_calls", content=content, usage=usage, cached=False)

    await host_model(
        runtime,
        ScriptedModel(answer),
        tools=[add],
        limits=Limits(max_cost=0.25),
        cost=lambda usage: usage.prompt_tokens / 1000,
    )
    result = await run(runtime)
    assert result.reason is TerminationReason.BUDGET
    assert (result.usage.requests, result.usage.tokens, round(result.usage.cost, 3)) == (3, 330, 0.3)


async def test_facts_that_are_no_json_end_the_run_and_say_where(runtime: LocalRuntime) -> None:
    class Facts(BaseModel):
        connection: Any = None

    def update(facts: Facts, call: Any, result: Any) -> Facts:
        return Facts(connection={"socket": object()})

    await host_model(runtime, says(wants("add", a=1, b=1), "2"), tools=[add], business=Facts, update=update)
    result = await run(runtime)
    assert result.reason is TerminationReason.FATAL_TOOL_ERROR
    assert "business.connection.socket" in result.text
    json.dumps(dict(await runtime.save_state()))


async def test_a_state_goes_to_another_runtime_and_goes_on_there(runtime: LocalRuntime) -> None:
    model = says(wants("add", a=1, b=1), "2")
    await host_model(runtime, model, tools=[add])
    handle = await Runs(runtime).start("assistant", "1 + 1?", conversation="c", paused=True)
    await handle.step()
    saved = json.loads(json.dumps(dict(await runtime.save_state())))
    async with LocalRuntime() as other:
        await host_model(other, model, tools=[add])
        await other.load_state({"assistant/c": saved["assistant/c"]})
        copy = Runs(other).get(handle.run_id)
        assert await copy.status() is RunStatus.PAUSED
        await copy.resume()
        assert (await asyncio.wait_for(copy.result(), 5)).output == "2"


async def test_a_run_that_goes_on_was_loaded_goes_on_when_somebody_asks(runtime: LocalRuntime) -> None:
    gate = asyncio.Event()

    async def script(messages: Any, tools: Any) -> str:
        await gate.wait()
        return "done"

    await host_model(runtime, ScriptedModel(script))
    handle = await Runs(runtime).start("assistant", "x", conversation="c")
    saved = dict(await runtime.save_state())
    async with LocalRuntime() as other:
        await host_model(other, says("done there"))
        await other.load_state({"assistant/c": saved["assistant/c"]})
        assert (await asyncio.wait_for(Runs(other).get(handle.run_id).result(), 5)).output == "done there"
    gate.set()


async def test_the_token_of_the_turn_reaches_the_model(runtime: LocalRuntime) -> None:
    tokens: list[Any] = []

    class Looks(ScriptedModel):
        async def create(self, *args: Any, **options: Any) -> CreateResult:
            tokens.append(options["cancellation_token"])
            return await super().create(*args, **options)

    await host_model(runtime, Looks(["x"]))
    await run(runtime)
    assert isinstance(tokens[0], CancellationToken)
    assert "oken" not in json.dumps(dict(await runtime.agent_save_state(AgentId("assistant", "c")))).replace(
        "_tokens", ""
    )
