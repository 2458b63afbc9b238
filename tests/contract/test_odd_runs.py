"""Runs whose models, callers or limits are odd, on every runtime: each ends, or is refused with a word."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import FunctionCall

from stagebell.agents.messages import Task
from stagebell.agents.runs import Runs
from stagebell.errors import UnknownQuestion
from stagebell.messages.conversation import RunStatus, TerminationReason
from stagebell.tools.tool import tool
from tests.support.loops import host_model, reaches, run, says, wants


async def test_halves_of_surrogate_pairs_are_escaped(runtime: Any, start: Any) -> None:
    seen: list[str] = []

    def echo(text: str) -> str:
        """Say it again."""
        seen.append(text)
        return text

    raw = FunctionCall(id="x\udfff", name="echo", arguments='{"text": "b\udc00"}')
    model = says(FunctionCall(id="1", name="echo", arguments='{"text": "a\\ud800"}'), raw, "bad \ud800 text")
    await host_model(runtime, model, tools=[echo])
    await start(runtime)
    assert (await run(runtime)).output == "bad \\ud800 text"
    assert seen == ["a\\ud800", "b\\udc00"]


async def test_a_step_that_comes_to_a_wait_is_done(runtime: Any, start: Any) -> None:
    call = wants("ask_person", question="How many?")
    await host_model(runtime, says(call, "thanks"), ask_person=True)
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "ask", paused=True)
    assert await handle.step() is RunStatus.PAUSED
    assert await asyncio.wait_for(handle.step(), 10) in (RunStatus.PAUSED, RunStatus.WAITING)
    await handle.answer(call.id, "two")
    await handle.resume()
    assert (await handle.result()).output == "thanks"


async def test_what_is_before_the_beginning_is_refused(runtime: Any, start: Any) -> None:
    await host_model(runtime, says("done"))
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "go")
    await handle.result()
    with pytest.raises(ValueError, match="not after -1"):
        await handle.fork(-1)
    with pytest.raises(ValueError, match="not -1"):
        await anext(handle.events(-1))


@pytest.mark.parametrize("large", ["arguments", "output"])
async def test_an_answer_for_which_there_is_no_room_ends_the_run(runtime: Any, start: Any, large: str) -> None:
    def measure(text: str) -> int:
        """How long it is."""
        return len(text)

    text = "x" * 2_000_000
    model = says(wants("measure", text=text), "done") if large == "arguments" else says(text)
    await host_model(runtime, model, tools=[measure])
    await start(runtime)
    result = await run(runtime)
    if result.status is RunStatus.SUCCEEDED:  # in memory there is room
        assert result.output in ("done", text)
    else:
        assert result.reason is TerminationReason.MODEL_ERROR
        assert "the answer has 2,000,0" in result.text
        assert "max_state_bytes" in result.text
        assert result.usage.requests == 1
        assert len(model.requests) == 1


async def test_an_answer_that_nobody_waits_for_is_refused(runtime: Any, start: Any) -> None:
    call = wants("ask_person", question="How many?")
    await host_model(runtime, says(call, "thanks"), ask_person=True)
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "ask")
    await reaches(handle, RunStatus.WAITING)
    with pytest.raises(UnknownQuestion, match="other"):
        await handle.answer("other", "?")
    await handle.answer(call.id, "two")
    with pytest.raises(UnknownQuestion):
        await handle.answer(call.id, "three")
    assert (await handle.result()).output == "thanks"


async def test_tasks_and_facts_with_halves_of_surrogate_pairs(runtime: Any, start: Any) -> None:
    def echo() -> str:
        """Say it again."""
        return "x"

    def update(facts: Any, call: Any, result: Any) -> Any:
        return {**facts, "seen": "c\ud800"}

    question = wants("ask_person", question="b\udfff?")
    model = says(wants("echo"), question, "done")
    await host_model(runtime, model, tools=[echo], update=update, ask_person=True)
    await start(runtime)
    task = Task(content="a\ud800", source="s\ud800", business={"k\ud800": ["b\udc00"]})
    handle = await Runs(runtime).start("assistant", task)
    await reaches(handle, RunStatus.WAITING)
    await handle.answer(question.id, "d\ud800")
    assert (await handle.result()).output == "done"
    state = await handle.state()
    assert state.business == {"k\\ud800": ["b\\udc00"], "seen": "c\\ud800"}
    assert str(model.requests[0].messages[0].content) == "a\\ud800"
    assert str(model.requests[-1].messages).count("d\\\\ud800") == 1


async def test_what_a_state_may_have_is_what_the_runtime_says(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime(server_max_state_bytes=200_000)
    long = "é" * 40_000
    await host_model(runtime, says("x" * 80_000, long, "y" * 120_000), "assistant")
    await start(runtime)
    assert (await run(runtime, key="a")).output == "x" * 80_000
    second, third = await run(runtime, key="b"), await run(runtime, key="c")
    if runtime.state_limit is None:
        assert (second.output, third.output) == (long, "y" * 120_000)
        return
    assert second.output == long
    assert (third.status, third.reason) == (RunStatus.FAILED, TerminationReason.MODEL_ERROR)
    assert "the answer has 120,000 bytes" in third.text
    assert "200,000 less what ends a run" in third.text
    further = await run(runtime, key="b")
    assert "begins no step from 133,333 on" in further.text
    assert (await Runs(runtime).get(second.run_id).result()).output == long


async def test_results_for_which_there_is_no_room_give_way(make_runtime: Any, start: Any) -> None:
    def read(size: int) -> str:
        """Read so much."""
        return "x" * size

    runtime = make_runtime(server_max_state_bytes=150_000)
    calls = [wants("read", size=size) for size in (30_000, 120_000, 20_000)]
    model = says(calls, "done")
    await host_model(runtime, model, tools=[tool(read, effects="none", parallel_safe=True)])
    await start(runtime)
    assert (await run(runtime)).output == "done"
    said = [len(each.content) for each in model.requests[-1].messages[-1].content]
    assert (said[0], said[2]) == (30_000, 20_000)
    assert said[1] == 120_000 if runtime.state_limit is None else said[1] < 1000
