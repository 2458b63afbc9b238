"""Runs as things of their own, on every runtime: awaited, followed, stopped, stepped, forked, by their id alone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from stagebell.agents.limits import Limits
from stagebell.agents.messages import Task
from stagebell.agents.runs import RunHandle, Runs
from stagebell.errors import MalformedState, RunFailed, Undeliverable, UnknownRun
from stagebell.messages.conversation import Asked, RunStatus, TerminationReason
from stagebell.testing import ScriptedModel
from stagebell.tools.tool import tool
from tests.support.loops import host_model, results, run, says, sent, wants
from tests.support.waiting import eventually


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def followed(handle: RunHandle[Any], offset: int = 0) -> list[Any]:
    """What happens in a run until its end."""
    return [happened async for happened in handle.events(offset)]


class Sum(BaseModel):
    """A typed output."""

    value: int


async def test_started_here_awaited_there(runtime: Any, start: Any) -> None:
    await host_model(runtime, says('{"value": 42}'), output_type=Sum)
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "20 + 22?", output_type=Sum)
    assert await handle.output() == Sum(value=42)
    other = Runs(runtime).get(handle.run_id)
    result = await other.result()
    assert (result.output, result.status) == ({"value": 42}, "succeeded")
    assert (await handle.result()).model_copy(update={"output": result.output}) == result


async def test_a_run_of_the_past_keeps_its_result(runtime: Any, start: Any) -> None:
    await host_model(runtime, says(wants("add", a=1, b=1), "first", "second"), tools=[add])
    await start(runtime)
    first = await run(runtime, "one")
    await run(runtime, "two")
    assert await Runs(runtime).get(first.run_id).result() == first


async def test_what_happens_is_followed_while_it_does_and_again_from_any_offset(runtime: Any, start: Any) -> None:
    gate = asyncio.Event()

    async def script(messages: Any, tools: Any) -> Any:
        if len(messages) == 1:
            return [wants("add", a=1, b=1)]
        await gate.wait()
        return "two"

    await host_model(runtime, ScriptedModel(script), tools=[add])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "1 + 1?")
    seen: list[str] = []

    async def follow() -> None:
        async for happened in handle.events():
            seen.append(happened.entry.kind)

    following = asyncio.create_task(follow())
    await eventually(lambda: seen == ["asked", "decided", "returned"], 5)
    gate.set()
    await asyncio.wait_for(following, 5)
    assert seen == ["asked", "decided", "returned", "decided", "finished"]
    events = await followed(handle)
    later = await followed(handle, events[1].offset)
    assert [each.entry for each in later] == [each.entry for each in events[2:]]


async def test_whoever_comes_in_the_middle_of_a_step_sees_what_was_before_it(runtime: Any, start: Any) -> None:
    entered, gate, seen = asyncio.Event(), asyncio.Event(), list[str]()

    async def script(messages: Any, tools: Any) -> Any:
        if len(messages) == 1:
            return [wants("add", a=1, b=1)]
        entered.set()
        await gate.wait()
        return "two"

    await host_model(runtime, ScriptedModel(script), tools=[add])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "1 + 1?")
    await asyncio.wait_for(entered.wait(), 5)

    async def follow() -> None:
        async for happened in handle.events():
            seen.append(happened.entry.kind)

    following = asyncio.create_task(follow())
    await eventually(lambda: seen == ["asked", "decided", "returned"], 5)
    told = await asyncio.wait_for(handle.explain(), 5)
    assert (told.status, told.end, [call.verdict for call in told.calls]) == ("running", "it goes on", ["succeeded"])
    gate.set()
    await asyncio.wait_for(following, 5)
    assert seen == ["asked", "decided", "returned", "decided", "finished"]


async def test_a_pause_and_single_steps(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, says(wants("add", a=1, b=1), "2"), tools=[add])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "1 + 1?", paused=True)
    assert await handle.status() is RunStatus.PAUSED
    assert not model.requests
    assert await handle.step() is RunStatus.PAUSED
    assert len(model.requests) == 1
    assert await handle.step() is RunStatus.PAUSED
    assert results((await handle.state()).conversation) == [2]
    await handle.resume()
    assert (await handle.result()).output == "2"


async def test_a_pause_takes_effect_after_the_step_that_goes_on(runtime: Any, start: Any) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def script(messages: Any, tools: Any) -> Any:
        entered.set()
        await gate.wait()
        return [wants("add", a=1, b=1)] if len(messages) == 1 else "2"

    await host_model(runtime, ScriptedModel(script), tools=[add])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "1 + 1?")
    await asyncio.wait_for(entered.wait(), 5)
    pausing = asyncio.create_task(handle.pause())
    gate.set()
    assert await asyncio.wait_for(pausing, 5) is RunStatus.PAUSED
    state = await handle.state()
    assert results(state.conversation) == []
    await handle.resume()
    assert (await handle.result()).output == "2"


async def test_the_state_is_changed_between_two_steps(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, says("done"))
    await start(runtime)
    runs = Runs(runtime)
    handle = await runs.start("assistant", "buy ten", conversation="c", paused=True)
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0)  # it asks for the result, and only then for the status
    assert await handle.status() is RunStatus.PAUSED
    state = await runs.save_state(handle.run_id)
    state = json.loads(json.dumps(state).replace("buy ten", "buy two"))
    await runs.load_state(handle.run_id, state)
    await handle.resume()
    assert (await asyncio.wait_for(waiting, 5)).output == "done"
    assert "buy two" in sent(model)


async def test_a_state_begins_a_run_at_any_step(runtime: Any, start: Any) -> None:
    """In another conversation, as a fixture of a test would."""
    model = await host_model(runtime, says(wants("add", a=1, b=1), "2"), tools=[add])
    await start(runtime)
    runs = Runs(runtime)
    handle = await runs.start("assistant", "1 + 1?", conversation="c", paused=True)
    await handle.step()
    await handle.step()
    saved = json.dumps(await runs.save_state(handle.run_id)).replace("assistant/c#", "assistant/d#")
    copy = handle.run_id.replace("/c#", "/d#")
    await runs.load_state(copy, json.loads(saved))
    await runs.get(copy).resume()
    assert (await runs.get(copy).result()).steps == 2
    assert len(model.requests) == 2
    assert await handle.status() is RunStatus.PAUSED


async def test_a_run_forks_and_the_original_stays(runtime: Any, start: Any) -> None:
    model = await host_model(
        runtime, says(wants("add", a=1, b=1), wants("add", a=2, b=2), "first", "second"), tools=[add]
    )
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "go")
    original = await handle.result()
    before = await handle.state()

    def edit(state: Any) -> Any:
        note = Asked(run_id=state.control.run.run_id, step=1, at=0, content="and be quick")
        return replace(state, conversation=(*state.conversation, note))

    fork = await handle.fork(1, edit)
    result = await asyncio.wait_for(fork.result(), 10)
    assert (result.output, result.steps) == ("second", 2)
    assert "be quick" in sent(model)
    assert len(model.requests[-1].messages) == 4
    assert (await handle.state(), await handle.result()) == (before, original)
    assert [each.entry.kind for each in await followed(fork)][:3] == ["asked", "decided", "returned"]


async def test_what_cannot_be_forked_is_refused(runtime: Any, start: Any) -> None:
    await host_model(runtime, says(wants("add", a=1, b=1), "2"), tools=[add])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "1 + 1?", conversation="c")
    await handle.result()
    with pytest.raises(ValueError, match="3 steps"):
        await handle.fork(3)
    with pytest.raises(ValueError, match="ended with step 2"):
        await handle.fork(2)
    with pytest.raises(ValueError, match="has a conversation"):
        await handle.fork(1, conversation="c")


async def test_an_unknown_run_is_a_named_error(runtime: Any, start: Any) -> None:
    await host_model(runtime, says("x"))
    await start(runtime)
    runs = Runs(runtime)
    for wrong in ("nothing", "assistant#1", "assistant/c#"):
        with pytest.raises(UnknownRun):
            runs.get(wrong)
    known = (await runs.start("assistant", "x", conversation="c")).run_id
    nobody = runs.get(known[:-8] + "0" * 8)
    for ask in (nobody.result, nobody.state, nobody.status, nobody.cancel, nobody.pause):
        with pytest.raises(UnknownRun, match="00000000"):
            await ask()
    with pytest.raises(UnknownRun):
        await followed(nobody)
    with pytest.raises(UnknownRun):
        await runs.save_state(nobody.run_id)
    with pytest.raises(MalformedState, match="control"):
        await runs.load_state(known, {"control": {"run": 7}})
    with pytest.raises(Undeliverable):
        await runs.start("nobody", "x")


async def test_a_run_without_an_output_says_so(runtime: Any, start: Any) -> None:
    await host_model(runtime, says(wants("add", a=1, b=1)), tools=[add], limits=Limits(max_steps=1))
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "x")
    with pytest.raises(RunFailed, match="unfinished") as caught:
        await handle.output()
    assert caught.value.reason == TerminationReason.MAX_STEPS
    assert (await handle.result()).output is None


async def test_one_run_ends_and_another_goes_on(runtime: Any, start: Any) -> None:
    gate = asyncio.Event()

    async def script(messages: Any, tools: Any) -> str:
        await gate.wait()
        return "done"

    await host_model(runtime, ScriptedModel(script))
    await start(runtime)
    runs = Runs(runtime)
    first, second = await runs.start("assistant", "a"), await runs.start("assistant", "b")
    assert await runs.cancel(first.run_id) is RunStatus.CANCELLED
    gate.set()
    assert (await second.result()).output == "done"
    assert await runs.cancel(second.run_id) is RunStatus.SUCCEEDED


async def test_what_was_done_is_undone_when_the_run_fails(runtime: Any, start: Any) -> None:
    done: list[str] = []

    def book(what: str) -> Any:
        @tool(
            name=f"book_{what}",
            effects="side",
            compensate=lambda arguments, result, context: done.append(
                f"undo {what} {result} {context.idempotency_key[-5:]}"
            ),
        )
        def booking(day: int) -> str:
            """Book."""
            done.append(f"book {what}")
            return f"{what}-{day}"

        return booking

    @tool(effects="none")
    def pay() -> None:
        """Pay."""
        raise PermissionError("no money")

    model = says(wants("book_hotel", day=1), wants("book_car", day=2), wants("pay"))
    await host_model(runtime, model, tools=[book("hotel"), book("car"), pay], on_error={"denied": "end_run"})
    await start(runtime)
    result = await run(runtime)
    assert (result.status, result.reason) == ("failed", "fatal_tool_error")
    assert "no money" in result.text
    assert done == ["book hotel", "book car", "undo car car-2 ~undo", "undo hotel hotel-1 ~undo"]


async def test_business_facts_follow_from_results(runtime: Any, start: Any) -> None:
    class Order(BaseModel):
        order_id: int = 0
        refund_id: str | None = None

    def refund(cents: int) -> str:
        """Refund."""
        return f"r{cents}"

    def update(order: Order, call: Any, result: Any) -> Order:
        return order.model_copy(update={"refund_id": result.value}) if call.name == "refund" else order

    await host_model(runtime, says(wants("refund", cents=5), "done"), tools=[refund], business=Order, update=update)
    await start(runtime)
    runs = Runs(runtime)
    with pytest.raises(ValueError, match="order_id"):
        await runs.start("assistant", Task(content="x", business={"order_id": "seven"}))
    handle = await runs.start("assistant", "x", business={"order_id": 7})
    await handle.result()
    assert (await handle.state()).business == {"order_id": 7, "refund_id": "r5"}
    assert json.loads(json.dumps(await runs.save_state(handle.run_id)))["business"]["refund_id"] == "r5"
