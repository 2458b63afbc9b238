"""An agent that decides by a model, on every runtime: what the model says is written down."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from autogen_core import AgentId, CancellationToken, FunctionCall
from pydantic import BaseModel

from stagebell import deadline
from stagebell.agents.delegates import agent_tool, handoff
from stagebell.agents.limits import Limits
from stagebell.agents.messages import CancelRun, Task
from stagebell.agents.runs import Runs
from stagebell.errors import Undeliverable
from stagebell.messages.conversation import Decided, Finished, RunStatus, TerminationReason
from stagebell.testing import ScriptedModel
from stagebell.tools.tool import tool
from tests.support.loops import host_model, results, run, says, sent, wants
from tests.support.waiting import eventually


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_two_steps_and_four_messages(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, says(wants("add", a=20, b=22), "42"), tools=[add], output_type=int)
    await start(runtime)
    result = await run(runtime, "20 + 22?")
    assert (result.status, result.reason, result.output) == ("succeeded", "final_output", 42)
    assert (result.steps, result.last_tool) == (2, "add")
    assert [type(message).__name__ for message in model.requests[1].messages][:3] == [
        "SystemMessage",
        "UserMessage",
        "AssistantMessage",
    ]
    assert "'42'" in sent(model)
    assert result.usage.requests == 2
    assert result.usage.prompt_tokens > 0


async def test_a_conversation_goes_on_with_a_run_of_its_own_count(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, says("first", "second"))
    await start(runtime)
    first, second = await run(runtime, "one"), await run(runtime, "two")
    assert (first.steps, second.steps) == (1, 1)
    assert first.run_id != second.run_id
    assert "one" in sent(model)
    assert "first" in sent(model)


async def test_tasks_of_one_conversation_wait_in_line(runtime: Any, start: Any) -> None:
    gate, order = asyncio.Event(), list[str]()

    async def script(messages: Any, tools: Any) -> str:
        order.append(messages[-1].content)
        if len(order) == 1:
            await gate.wait()
        return f"done {messages[-1].content}"

    await host_model(runtime, ScriptedModel(script))
    await start(runtime)
    calls = [asyncio.create_task(run(runtime, text)) for text in ("a",)]
    await eventually(lambda: order == ["a"], 5)
    calls += [asyncio.create_task(run(runtime, text)) for text in ("b", "c")]
    other = await run(runtime, "x", key="other")
    assert other.output == "done x"
    gate.set()
    assert [(await call).output for call in calls] == ["done a", "done b", "done c"]


async def test_the_same_task_twice_is_one_run(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, says("once", "twice"))
    await start(runtime)
    task, agent = Task(content="x"), AgentId("assistant", "c")
    first = await runtime.send_message(task, agent, message_id="m1")
    second = await runtime.send_message(Task(content="y"), agent, message_id="m2")
    assert first.run_id != second.run_id
    assert len(model.requests) == 2


async def test_an_answer_that_is_not_valid_is_corrected(runtime: Any, start: Any) -> None:
    class Score(BaseModel):
        value: int

    model = await host_model(runtime, says('{"value": "much"}', '{"value": 3}'), output_type=Score)
    await start(runtime)
    result = await run(runtime)
    assert result.output == {"value": 3}
    assert result.steps == 2
    assert "value" in sent(model).splitlines()[-2]
    state = await runtime.agent_save_state(AgentId("assistant", "c"))
    decided = [entry for entry in state["conversation"] if entry["kind"] == "decided"]
    assert [entry["decision"]["output"] for entry in decided] == [{"value": 3}]


@pytest.mark.parametrize("retries", [0, 2])
async def test_bad_outputs_are_bounded(runtime: Any, start: Any, retries: int) -> None:
    model = await host_model(
        runtime, ScriptedModel(lambda messages, tools: "?"), output_type=int, limits=Limits(output_retries=retries)
    )
    await start(runtime)
    result = await run(runtime)
    assert (result.status, result.reason, result.output) == ("failed", "output_invalid", None)
    assert len(model.requests) == retries + 1


async def test_what_a_tool_raises_is_told_and_the_next_one_runs(runtime: Any, start: Any) -> None:
    def broken() -> None:
        """Fails."""
        raise RuntimeError("out of order")

    model = await host_model(
        runtime,
        says([wants("broken"), wants("nowhere"), wants("add", a=1, b="x"), wants("add", a=1, b=2)], "done"),
        tools=[broken, add],
    )
    await start(runtime)
    handle = Runs(runtime).get((await run(runtime)).run_id)
    entries = [happened.entry async for happened in handle.events()]
    assert results(entries) == ["business", "unknown_tool", "invalid_arguments", 3]
    for text in ("out of order", "nowhere", "add"):
        assert text in sent(model)


async def test_a_cancel_ends_a_request_that_goes_on(runtime: Any, start: Any) -> None:
    entered = asyncio.Event()

    async def script(messages: Any, tools: Any) -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    await host_model(runtime, ScriptedModel(script))
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "x")
    await asyncio.wait_for(entered.wait(), 5)
    begun = time.monotonic()
    assert await handle.cancel("enough") is RunStatus.CANCELLED
    assert time.monotonic() - begun < 0.5
    result = await handle.result()
    assert (result.status, result.reason, result.output) == ("cancelled", "cancelled", None)
    assert "enough" in result.text


async def test_a_cancel_ends_a_tool_and_every_call_has_a_result(runtime: Any, start: Any) -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        """Takes long."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    model = await host_model(runtime, says([wants("slow"), wants("add", a=1, b=1)], "again"), tools=[slow, add])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "x", conversation="c")
    await asyncio.wait_for(entered.wait(), 5)
    await handle.cancel()
    await asyncio.wait_for(cancelled.wait(), 1)
    entries = [happened.entry async for happened in handle.events()]
    assert results(entries) == ["outcome_unknown", "cancelled"]
    assert isinstance(entries[-1], Finished)
    assert (await run(runtime, "go on")).output == "again"
    assert len(model.requests) == 2


async def test_a_run_ends_at_its_deadline_and_so_does_its_tool(runtime: Any, start: Any) -> None:
    cancelled = asyncio.Event()

    async def slow() -> None:
        """Takes long."""
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await host_model(runtime, says(wants("slow")), tools=[slow], limits=Limits(timeout=0.3))
    await start(runtime)
    result = await run(runtime)
    assert (result.status, result.reason) == ("failed", "timeout")
    await asyncio.wait_for(cancelled.wait(), 1)


async def test_the_deadline_of_the_caller_is_one_of_the_run(runtime: Any, start: Any) -> None:
    async def script(messages: Any, tools: Any) -> str:
        await asyncio.Event().wait()
        return ""

    await host_model(runtime, ScriptedModel(script))
    await start(runtime)
    runs = Runs(runtime)
    with deadline(0.5):
        handle = await runs.start("assistant", "x")
    assert (await asyncio.wait_for(handle.result(), 5)).reason is TerminationReason.TIMEOUT


async def test_run_is_cancelled_with_its_token(runtime: Any, start: Any) -> None:
    entered, token = asyncio.Event(), CancellationToken()

    async def script(messages: Any, tools: Any) -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    await host_model(runtime, ScriptedModel(script))
    await start(runtime)
    runs = Runs(runtime)
    task = asyncio.create_task(runs.run("assistant", "x", conversation="c", cancellation_token=token))
    await asyncio.wait_for(entered.wait(), 5)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    state = await runtime.agent_save_state(AgentId("assistant", "c"))
    assert state["conversation"][-1]["reason"] == "cancelled"


async def test_an_agent_is_a_tool_of_another(runtime: Any, start: Any) -> None:
    below = await host_model(runtime, says("it rains"), type="weather")
    model = await host_model(
        runtime, says(wants("weather", task="Paris?"), "bring a coat"), tools=[agent_tool("weather", description="…")]
    )
    await start(runtime)
    result = await run(runtime)
    assert result.output == "bring a coat"
    assert (result.steps, result.usage.requests) == (3, 3)
    assert "it rains" in sent(model)
    assert "Paris?" in sent(below)


async def test_two_calls_to_one_agent_do_not_interleave(runtime: Any, start: Any) -> None:
    seen: list[list[str]] = []

    async def script(messages: Any, tools: Any) -> str:
        seen.append([str(message.content) for message in messages])
        await asyncio.sleep(0.01)
        return f"re {messages[-1].content}"

    await host_model(runtime, ScriptedModel(script), type="clerk")
    both = [wants("clerk", task="one"), wants("clerk", task="two")]
    model = await host_model(runtime, says(both, "done"), tools=[agent_tool("clerk", description="…")])
    await start(runtime)
    await run(runtime)
    assert seen == [["one"], ["one", "re one", "two"]]
    assert "re one" in sent(model)
    assert "re two" in sent(model)


async def test_a_task_is_handed_over(runtime: Any, start: Any) -> None:
    await host_model(runtime, says("refunded"), type="billing")
    await host_model(runtime, says(wants("transfer_to_billing", message="a refund")), tools=[handoff("billing")])
    await start(runtime)
    result = await run(runtime)
    assert (result.status, result.output, result.steps) == ("succeeded", "refunded", 2)


async def test_handing_over_without_end_ends_at_the_hop_limit(runtime: Any, start: Any) -> None:
    for own, other in (("a", "b"), ("b", "a")):
        model = ScriptedModel(lambda messages, tools, other=other: [wants(f"transfer_to_{other}", message="yours")])
        await host_model(runtime, model, type=own, tools=[handoff(other)], limits=Limits(max_hops=3))
    await start(runtime)
    result = await run(runtime, type="a")
    assert (result.status, result.reason) == ("failed", "hop_limit")
    assert "a/c → b/c → a/" in result.text


async def test_a_budget_holds_for_the_runs_below(runtime: Any, start: Any) -> None:
    below = ScriptedModel(lambda messages, tools: [wants("add", a=len(messages), b=1)])
    await host_model(runtime, below, type="busy", tools=[add])
    await host_model(
        runtime,
        says(wants("busy", task="x"), "gave up"),
        tools=[agent_tool("busy", description="…")],
        limits=Limits(max_steps=6),
    )
    await start(runtime)
    result = await run(runtime)
    assert result.reason is TerminationReason.MAX_STEPS
    assert len(below.requests) == 5


async def test_a_cancel_reaches_the_runs_below(runtime: Any, start: Any) -> None:
    entered = asyncio.Event()

    async def script(messages: Any, tools: Any) -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    await host_model(runtime, ScriptedModel(script), type="slow")
    await host_model(runtime, says(wants("slow", task="x")), tools=[agent_tool("slow", description="…")])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "x", conversation="c")
    await asyncio.wait_for(entered.wait(), 5)
    await handle.cancel()

    async def ended() -> bool:
        state = await runtime.agent_save_state(AgentId("slow", "c"))
        return bool(state["conversation"][-1].get("reason") == "cancelled")

    await eventually(ended, within=10)


async def test_an_agent_that_does_not_exist_is_told_to_the_model(runtime: Any, start: Any) -> None:
    model = await host_model(
        runtime, says(wants("nobody", task="x"), "alone"), tools=[agent_tool("nobody", description="…")]
    )
    await start(runtime)
    assert (await run(runtime)).output == "alone"
    assert "nobody" in sent(model)
    with pytest.raises(Undeliverable):
        await runtime.send_message(CancelRun(run_id="nobody/c#1"), AgentId("nobody", "c"))


async def test_calls_that_may_overlap_do(runtime: Any, start: Any) -> None:
    running = [0, 0]

    @tool(effects="none", parallel_safe=True)
    async def look(n: int) -> int:
        """Look."""
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0.02)
        running[0] -= 1
        return n

    await host_model(runtime, says([wants("look", n=n) for n in range(3)], "done"), tools=[look])
    await start(runtime)
    handle = Runs(runtime).get((await run(runtime)).run_id)
    assert results([happened.entry async for happened in handle.events()]) == [0, 1, 2]
    assert running[1] == 3


async def test_ids_that_a_model_uses_again_are_told_apart(runtime: Any, start: Any) -> None:
    call = FunctionCall(id="0", name="add", arguments='{"a": 1, "b": 1}')
    other = FunctionCall(id="0", name="add", arguments='{"a": 2, "b": 2}')
    await host_model(runtime, says(call, other, "done"), tools=[add])
    await start(runtime)
    handle = Runs(runtime).get((await run(runtime)).run_id)
    entries = [happened.entry async for happened in handle.events()]
    assert results(entries) == [2, 4]
    ids = [
        entry.decision.calls[0].id
        for entry in entries
        if isinstance(entry, Decided) and hasattr(entry.decision, "calls")
    ]
    assert len(set(ids)) == 2


async def test_a_result_that_is_too_large_is_an_error(runtime: Any, start: Any) -> None:
    async def big(size: int) -> str:
        """Say a lot."""
        return "x" * size

    model = await host_model(
        runtime, says([wants("big", size=250_000), wants("big", size=1)], wants("big", size=2), "ok"), tools=[big]
    )
    await start(runtime)
    result = await run(runtime)
    assert result.output == "ok"
    assert "250,000 characters" in sent(model)


@pytest.mark.needs(publishes_at_once=False)
async def test_a_conversation_that_is_too_long_ends_its_run(runtime: Any, start: Any) -> None:
    async def big(size: int) -> str:
        """Say a lot."""
        return "x" * size

    model = ScriptedModel(lambda messages, tools: [wants("big", size=150_000)])
    await host_model(runtime, model, tools=[big], limits=Limits(repeated_calls=None))
    await start(runtime)
    result = await run(runtime)
    assert (result.status, result.reason) == ("failed", "model_error")
    assert "another conversation" in result.text
    again = await run(runtime)
    assert "another conversation" in again.text
    assert (await run(runtime, key="fresh")).steps > 3
