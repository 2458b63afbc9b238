"""What runs tell of their way, on every runtime: records, requests and what is stored fit together."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol, runtime_checkable

import pytest
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient

from stagebell.agents.archive import stored_conversation
from stagebell.agents.context import RunContext, current_run
from stagebell.agents.limits import Limits
from stagebell.agents.runs import Runs
from stagebell.errors import UnknownRun
from stagebell.messages.conversation import AnyEntry, RunStatus
from stagebell.messages.tool_calls import ErrorCode
from stagebell.testing import ScriptedModel
from stagebell.tools.context import ToolContext
from stagebell.tools.guardrails import Allow, Guardrail, Subject
from stagebell.tools.tool import tool
from tests.support.loops import host_model, results, run, says, wants


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def broken() -> None:
    """Fails."""
    raise RuntimeError("out of order")


async def way_of(runtime: Any, run_id: str) -> list[AnyEntry]:
    """What happened in a run that has ended."""
    return [happened.entry async for happened in Runs(runtime).get(run_id).events()]


async def test_every_result_is_in_the_next_request_by_its_id(runtime: Any, start: Any) -> None:
    """Errors too: one that never reached the model would be a fault of ours."""
    answers = [
        [wants("add", a=1, b=1), wants("broken"), wants("nowhere")],
        [wants("add", a="x", b=1)],
        "done",
    ]
    model = await host_model(runtime, says(*answers), tools=[add, broken])
    await start(runtime)
    entries = await way_of(runtime, (await run(runtime)).run_id)
    returned = [entry for entry in entries if entry.kind == "returned"]
    assert [entry.step for entry in returned] == [1, 1, 1, 2]
    for entry in returned:
        request = model.requests[entry.step].messages
        told = {each.call_id: each for each in request[-1].content}
        assert told[entry.result.call_id].content == entry.result.text
        assert told[entry.result.call_id].is_error is entry.result.is_error
        asked = {call.id for call in request[-2].content}
        assert told.keys() == asked


async def test_events_show_the_phases_of_each_step(runtime: Any, start: Any) -> None:
    answers = [wants("add", a=20, b=22), "it is 42", "42"]
    await host_model(runtime, says(*answers), tools=[add], output_type=int)
    await start(runtime)
    handle = Runs(runtime).get((await run(runtime)).run_id)
    phases = [(str(phase), each.step) async for each in handle.events() for phase in each.phases]
    assert phases == [
        ("observe", 0),
        *[(phase, 1) for phase in ("decide", "act", "feedback", "update")],
        *[(phase, 2) for phase in ("decide", "feedback")],
        *[(phase, 3) for phase in ("decide", "finish")],
    ]


def in_words(entries: list[AnyEntry]) -> list[dict[str, Any]]:
    """The records without what differs between any two runs."""
    return [entry.model_dump(mode="json", exclude={"run_id", "at", "usage"}) for entry in entries]


async def test_another_policy_that_decides_the_same_leaves_the_same_records(runtime: Any, start: Any) -> None:
    """The runtime is not the agent: who decides is exchanged, and nothing else changes."""
    call = wants("add", a=20, b=22)

    def decide(messages: Any, tools: Any) -> Any:
        return [call] if messages[-1].type == "UserMessage" else messages[-1].content[0].content

    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    decided = CreateResult(content=[call], finish_reason="function_calls", usage=usage, cached=False)
    theirs = ReplayChatCompletionClient([decided, "42"], model_info=ScriptedModel([]).model_info)
    policies: dict[str, Any] = {"listed": says(call, "42"), "function": ScriptedModel(decide), "client": theirs}
    for name, model in policies.items():
        await host_model(runtime, lambda model=model: model, type=name, tools=[add])
    await start(runtime)
    ways = [in_words(await way_of(runtime, (await run(runtime, type=name)).run_id)) for name in policies]
    assert ways[0] == ways[1] == ways[2]
    assert [each["kind"] for each in ways[0]] == ["asked", "decided", "returned", "decided", "finished"]


async def test_each_part_is_exchanged_by_itself(runtime: Any, start: Any) -> None:
    """The task, the model, dependencies, who checks, and who executes: a fake of each, and it is asked."""
    asked: list[str] = []

    class Bench(StaticWorkbench):
        async def call_tool(self, name: str, *args: Any, **options: Any) -> Any:
            asked.append("executor")
            return await super().call_tool(name, *args, **options)

    def checks(subject: Subject) -> Any:
        asked.append("checks")
        return Allow()

    def made(key: str) -> str:
        asked.append(f"dependencies of {key}")
        return key

    def instructed(context: RunContext[str]) -> str:
        asked.append(f"context of {context.deps}")
        return ""

    def decides(messages: Any, tools: Any) -> Any:
        asked.append("model")
        return [wants("add", a=1, b=1)] if messages[-1].type == "UserMessage" else "done"

    options: dict[str, Any] = {
        "tools": [Bench([FunctionTool(add, "Adds.")])],
        "guardrails": [Guardrail(checks, at="tool_call")],
        "deps": made,
        "instructions": instructed,
    }
    await host_model(runtime, ScriptedModel(decides), **options)
    await start(runtime)
    assert (await run(runtime, deps_key="k")).output == "done"
    step = ["dependencies of k", "context of k", "model"]
    assert asked == [*step, "checks", "executor", *step[1:]]


@runtime_checkable
class Contract(Protocol):
    """The least that runs can do."""

    async def run(self, agent: str, task: Any, **options: Any) -> Any: ...
    async def cancel(self, run_id: str) -> Any: ...
    async def save_state(self, run_id: str) -> dict[str, Any]: ...
    async def load_state(self, run_id: str, state: dict[str, Any]) -> None: ...


async def test_runs_keep_the_least_contract(runtime: Any, start: Any) -> None:
    await host_model(runtime, says(wants("add", a=1, b=1), "two", "later"), tools=[add])
    await start(runtime)
    runs = Runs(runtime)
    assert isinstance(runs, Contract)
    result = await runs.run("assistant", "1 + 1?", conversation="c")
    state = json.loads(json.dumps(await runs.save_state(result.run_id)))
    with pytest.raises(UnknownRun):
        await runs.save_state("assistant/c#00000000")
    with pytest.raises(UnknownRun):
        await runs.load_state("assistant/d#00000000", state)
    await runs.load_state(result.run_id, state)
    assert await runs.save_state(result.run_id) == state
    assert await runs.cancel(result.run_id) is RunStatus.SUCCEEDED


async def test_a_run_that_had_ended_gives_its_result_and_asks_nobody(runtime: Any, start: Any) -> None:
    """Also where its state was only loaded."""
    model = await host_model(runtime, says(wants("add", a=1, b=1), "two"), tools=[add])
    await start(runtime)
    runs = Runs(runtime)
    first = await runs.run("assistant", "1 + 1?", conversation="c")
    saved = json.dumps(await runs.save_state(first.run_id)).replace("assistant/c#", "assistant/d#")
    copy = first.run_id.replace("/c#", "/d#")
    await runs.load_state(copy, json.loads(saved))
    await runs.get(copy).resume()
    again = await runs.get(copy).result()
    assert again == first.model_copy(update={"run_id": copy})
    assert len(model.requests) == 2


@pytest.mark.needs(publishes_at_once=False)
async def test_a_decision_is_stored_before_its_tools_run(runtime: Any, start: Any) -> None:
    """So whoever looks while a tool is at work finds its call as one that is pending."""
    entered, gate = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        """Takes its time."""
        entered.set()
        await gate.wait()
        return "done"

    call = wants("slow")
    await host_model(runtime, says(call, "end"), tools=[slow])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "go")
    await asyncio.wait_for(entered.wait(), 10)
    stored = await stored_conversation(runtime, handle.run_id)
    assert [entry.kind for entry in stored.conversation] == ["asked", "decided"]
    assert stored.control.active is not None
    assert [(each.call.id, each.call.name) for each in stored.control.active.pending] == [(call.id, "slow")]
    gate.set()
    assert (await handle.result()).output == "end"


ANSWERS: list[tuple[Any, list[Any]]] = [
    ("just a text", []),
    (wants("add", a=1, b=1), [2]),
    ([wants("add", a=1, b=1), wants("add", a=2, b=2)], [2, 4]),
    (FunctionCall(id="j", name="add", arguments='{"a": 1,'), ["invalid_arguments"]),
    (wants("subtract", a=1, b=1), ["unknown_tool"]),
    (wants("add", a=1), ["invalid_arguments"]),
]


@pytest.mark.parametrize(("answer", "came"), ANSWERS, ids=["text", "one", "several", "no JSON", "unknown", "missing"])
async def test_whatever_the_model_answers_leads_on(runtime: Any, start: Any, answer: Any, came: list[Any]) -> None:
    await host_model(runtime, says(*([answer] if not came else [answer, "end"])), tools=[add])
    await start(runtime)
    result = await run(runtime)
    assert result.output == ("end" if came else answer)
    assert results(await way_of(runtime, result.run_id)) == came


@pytest.mark.parametrize("policy", ["feed_back", "end_run"])
async def test_a_tool_that_does_not_exist_is_told_or_ends_the_run(runtime: Any, start: Any, policy: Any) -> None:
    model = says(wants("nowhere"), "instead")
    await host_model(runtime, model, tools=[add], on_error={ErrorCode.UNKNOWN_TOOL: policy})
    await start(runtime)
    result = await run(runtime)
    if policy == "feed_back":
        assert (result.output, len(model.requests)) == ("instead", 2)
    else:
        assert (result.status, result.reason) == ("failed", "fatal_tool_error")
        assert "nowhere" in result.text
        assert len(model.requests) == 1


async def test_tools_see_the_time_that_their_run_has_left(runtime: Any, start: Any) -> None:
    left: list[float] = []

    @tool(effects="none")
    async def work(context: ToolContext[object]) -> None:
        """Work."""
        remaining = context.remaining()
        assert remaining is not None
        left.append(remaining)
        await asyncio.sleep(0.1)

    await host_model(runtime, says(wants("work"), wants("work"), "done"), tools=[work], limits=Limits(timeout=30))
    await start(runtime)
    assert (await run(runtime)).output == "done"
    assert 30 >= left[0] > left[1] + 0.09


async def test_a_blocking_tool_sees_its_run_in_its_thread(runtime: Any, start: Any) -> None:
    @tool(effects="none")
    def look() -> list[str]:
        """Look."""
        context = current_run.get()
        assert context is not None
        return [context.run_id, context.deps, str(context.cancellation_token.is_cancelled())]

    await host_model(runtime, says(wants("look"), "done"), tools=[look], deps=lambda key: f"deps of {key}")
    await start(runtime)
    result = await run(runtime, deps_key="k")
    assert results(await way_of(runtime, result.run_id)) == [[result.run_id, "deps of k", "False"]]
