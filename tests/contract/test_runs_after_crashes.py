"""A run whose worker dies goes on with another one: nothing is done twice, and nothing that was done is forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from stagebell.agents.context import RunContext
from stagebell.agents.explaining import Verdict
from stagebell.agents.messages import Task
from stagebell.agents.runs import Runs
from stagebell.errors import FatalToolError
from stagebell.messages.conversation import RunResult, RunStatus, TerminationReason
from stagebell.testing import ScriptedModel, crash
from stagebell.tools.approval_messages import ApprovalDecision
from stagebell.tools.approvals import Approvals, desk_of
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import Status
from stagebell.tools.tool import tool
from tests.support.loops import host_model, results, wants
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs(publishes_at_once=False)


class Bank:
    """A service outside: it knows every payment by its key, and outlives all workers."""

    def __init__(self) -> None:
        self.paid: dict[str, int] = {}
        self.calls = 0

    def pay(self, key: str, cents: int) -> str:
        self.calls += 1
        self.paid.setdefault(key, cents)
        return f"paid {cents}"


class Fault:
    """Kills the worker that comes to the given place for the first time."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.passed = 0
        self.runtime: Any = None
        self.hit = asyncio.Event()

    async def here(self) -> None:
        self.passed += 1
        if self.passed == self.place and not self.hit.is_set():
            self.hit.set()
            await crash(self.runtime)
            await asyncio.Event().wait()


def pays_once(bank: Bank, fault: Fault, **options: Any) -> Any:
    @tool(name="pay", **options)
    async def pay(context: ToolContext[object], cents: int) -> str:
        """Pay."""
        await fault.here()
        said = bank.pay(context.idempotency_key, cents)
        await fault.here()
        return said

    return pay


def script(fault: Fault, *answers: Any) -> ScriptedModel:
    """Answers by how far the conversation is, so that a worker that comes anew knows where it stands."""

    async def answer(messages: Any, tools: Any) -> Any:
        await fault.here()
        done = sum(type(message).__name__ == "AssistantMessage" for message in messages)
        return answers[done] if isinstance(answers[done], str) else [answers[done]]

    return ScriptedModel(answer)


async def after_a_crash(
    make_runtime: Any, start: Any, fault: Fault, model: ScriptedModel, **options: Any
) -> tuple[Runs, RunResult]:
    """Let one worker die at the fault, and another go on; the runs, and the result."""
    first = fault.runtime = make_runtime(server_lease=0.6)
    await host_model(first, model, **options)
    await start(first)
    handle = await Runs(first).start("assistant", "pay", conversation="c")
    if fault.place:
        await asyncio.wait_for(fault.hit.wait(), 10)
    second = make_runtime(server_lease=0.6)
    await host_model(second, model, **options)
    await start(second)
    runs = Runs(second)
    return runs, await asyncio.wait_for(runs.get(handle.run_id).result(), 20)


def status_of(bank: Bank) -> Any:
    async def status(context: ToolContext[object]) -> Status:
        cents = bank.paid.get(context.idempotency_key)
        return Status("absent") if cents is None else Status("succeeded", f"paid {cents}")

    return status


@pytest.mark.parametrize("place", range(1, 7))
async def test_wherever_the_worker_dies_there_is_one_payment(make_runtime: Any, start: Any, place: int) -> None:
    """Before the model answers, before and after the payment, before the second answer; the places are six."""
    bank, fault = Bank(), Fault(place)
    pay = pays_once(bank, fault, effects="side", status=status_of(bank))
    model = script(fault, wants("pay", cents=500), wants("pay", cents=20), "done")
    _, result = await after_a_crash(make_runtime, start, fault, model, tools=[pay])
    assert (result.status, result.output, result.steps) == ("succeeded", "done", 3)
    assert sorted(bank.paid.values()) == [20, 500]
    assert bank.calls == 2


async def test_an_idempotent_tool_is_run_again_with_its_key(make_runtime: Any, start: Any) -> None:
    bank, fault = Bank(), Fault(3)
    pay = pays_once(bank, fault, effects="idempotent")
    model = script(fault, wants("pay", cents=500), "done")
    runs, result = await after_a_crash(make_runtime, start, fault, model, tools=[pay])
    assert (result.status, result.output) == ("succeeded", "done")
    assert (list(bank.paid.values()), bank.calls) == ([500], 2)
    (call,) = (await runs.get(result.run_id).explain()).calls
    assert (call.verdict, call.attempts) == (Verdict.REPEATED, 2)


async def test_a_tool_of_which_nobody_can_tell_is_not_run_again(make_runtime: Any, start: Any) -> None:
    bank, fault = Bank(), Fault(3)
    pay = pays_once(bank, fault)
    runs, result = await after_a_crash(
        make_runtime, start, fault, script(fault, wants("pay", cents=500), "done"), tools=[pay]
    )
    assert (result.status, result.reason) == (RunStatus.FAILED, TerminationReason.FATAL_TOOL_ERROR)
    assert bank.calls == 1
    state = await runs.get(result.run_id).state()
    assert results(state.conversation) == ["outcome_unknown"]
    (call,) = (await runs.get(result.run_id).explain()).calls
    assert (call.verdict, call.attempts) == (Verdict.NOT_RECORDED, 1)


@pytest.mark.parametrize(("effects", "undone"), [("idempotent", 2), ("side", 1)])
async def test_a_worker_dies_while_a_call_is_taken_back(
    make_runtime: Any, start: Any, effects: Any, undone: int
) -> None:
    """It is taken back again with the same key where that does no harm; else nobody does it twice, and it is told."""
    booked, taken_back, fault = set[str](), list[str](), Fault(1)

    async def take_back(arguments: Any, result: Any, context: ToolContext[object]) -> None:
        taken_back.append(context.idempotency_key)
        booked.discard(context.idempotency_key.removesuffix("~undo"))
        await fault.here()

    @tool(effects=effects, compensate=take_back)
    async def book(context: ToolContext[object]) -> str:
        """Book."""
        booked.add(context.idempotency_key)
        return "booked"

    @tool(effects="none")
    async def fail() -> None:
        """Fail."""
        raise FatalToolError("no way")

    model = script(Fault(0), wants("book"), wants("fail"))
    _, result = await after_a_crash(make_runtime, start, fault, model, tools=[book, fail])
    assert (result.status, result.reason) == (RunStatus.FAILED, TerminationReason.FATAL_TOOL_ERROR)
    assert (len(taken_back), len(set(taken_back)), booked) == (undone, 1, set())
    assert ("could not be undone" in result.text) == (effects == "side")


async def test_an_output_counts_with_its_commit_and_not_before(make_runtime: Any, start: Any) -> None:
    """The worker dies when the output was found valid: nobody finds one, and it is asked for again."""
    fault, seen = Fault(1), list[list[str]]()

    async def good(output: str, context: RunContext[Any]) -> None:
        seen.append([entry.kind for entry in context.conversation])
        await fault.here()

    runs, result = await after_a_crash(make_runtime, start, fault, script(Fault(0), "done"), output_validators=[good])
    assert (result.status, result.output, result.steps) == ("succeeded", "done", 1)
    assert seen == [["asked"], ["asked"]]
    conversation = (await runs.get(result.run_id).state()).conversation
    assert [entry.kind for entry in conversation] == ["asked", "decided", "finished"]


async def test_a_caller_outside_gets_its_result_from_the_next_worker(make_runtime: Any, start: Any) -> None:
    fault = Fault(1)
    first = fault.runtime = make_runtime(server_lease=0.6)
    model = script(fault, "done")
    await host_model(first, model)
    await start(first)
    async with Publisher(first._url, namespace=first._namespace) as publisher:
        runs = Runs(publisher)
        handle = await runs.start("assistant", "x", conversation="c")
        direct = asyncio.create_task(publisher.call(Task(content="y"), AgentId("assistant", "d")))
        waiting = asyncio.create_task(handle.result())
        await asyncio.wait_for(fault.hit.wait(), 10)
        second = make_runtime(server_lease=0.6)
        await host_model(second, model)
        await start(second)
        assert (await asyncio.wait_for(waiting, 20)).output == "done"
        assert (await asyncio.wait_for(direct, 20)).output == "done"
        kinds = [happened.entry.kind async for happened in handle.events()]
        assert kinds == ["asked", "decided", "finished"]


async def test_a_run_waits_for_an_approval_while_nobody_lives(make_runtime: Any, start: Any) -> None:
    bank, looked = Bank(), list[str]()
    nothing = Fault(0)

    @tool(effects="none")
    async def look() -> str:
        """Look."""
        looked.append("looked")
        return "looks good"

    pay = pays_once(bank, nothing, effects="side", requires_approval=True)
    model = script(nothing, wants("look"), wants("pay", cents=500), "done")
    first = make_runtime(server_lease=0.6)
    await host_model(first, model, tools=[look, pay])
    await start(first)
    handle = await Runs(first).start("assistant", "pay", conversation="c")
    await eventually(Approvals(first).list, within=10)
    await crash(first)

    async with Publisher(first._url, namespace=first._namespace) as publisher:
        (pending,) = await Approvals(publisher).list()
        assert not bank.paid
        decision = ApprovalDecision(id=pending.request.id, verdict="approve")
        await publisher.schedule(decision, desk_of(decision.id), delay=0)
    second = make_runtime(server_lease=0.6)
    await host_model(second, model, tools=[look, pay])
    await start(second)
    result = await asyncio.wait_for(Runs(second).get(handle.run_id).result(), 20)
    assert result.output == "done"
    assert (looked, list(bank.paid.values()), bank.calls) == (["looked"], [500], 1)
    assert len(model.requests) == 3


async def test_a_run_of_another_worker_is_cancelled(make_runtime: Any, start: Any) -> None:
    entered = asyncio.Event()

    async def slow(messages: Any, tools: Any) -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    first, second = make_runtime(), make_runtime()
    await host_model(first, ScriptedModel(slow))
    await start(first)
    await start(second)
    handle = await Runs(first).start("assistant", "x")
    await asyncio.wait_for(entered.wait(), 5)
    assert await Runs(second).cancel(handle.run_id) is RunStatus.CANCELLED
    assert (await handle.result()).status is RunStatus.CANCELLED


async def test_a_handed_over_worker_goes_on(make_runtime: Any, start: Any) -> None:
    """A worker that stops in the usual way leaves its runs to others."""
    gate, asked = asyncio.Event(), list[int]()

    async def slow(messages: Any, tools: Any) -> Any:
        asked.append(len(messages))
        if len(messages) > 1:
            return "done"
        await gate.wait()
        return [wants("look")]

    @tool(effects="none")
    async def look() -> str:
        """Look."""
        return "seen"

    first, second = make_runtime(server_lease=0.6), make_runtime()
    for runtime in (first, second):
        await host_model(runtime, ScriptedModel(slow), tools=[look])
        await start(runtime)
    handles = [await Runs(first).start("assistant", "x") for _ in range(4)]
    await eventually(lambda: len(asked) == 4, 5)
    stopping = asyncio.create_task(first.stop())
    gate.set()
    await asyncio.wait_for(stopping, 10)
    for handle in handles:
        result = await asyncio.wait_for(Runs(second).get(handle.run_id).result(), 20)
        assert result.output == "done"
