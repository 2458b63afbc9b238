"""What went wrong in a run is told apart: the model's answers, what did not fit, what was done, and why it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stagebell import LocalRuntime
from stagebell.agents.explaining import Explanation, Verdict, explain
from stagebell.agents.limits import Limits
from stagebell.agents.runs import RunHandle, Runs
from stagebell.errors import Denied, UnknownRun
from stagebell.messages.conversation import RunStatus
from stagebell.tools.approvals import Approvals
from stagebell.tools.tool import tool
from tests.support.loops import host_model, says, wants
from tests.support.waiting import eventually

pytestmark = pytest.mark.runtime


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """In memory, started."""
    async with LocalRuntime() as runtime:
        yield runtime


class Bank:
    """Fails in each of the ways in which a service outside may fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.stands = asyncio.Event()

    @property
    def tools(self) -> list[Any]:
        return [
            tool(self.refuses, name="refuses", effects="none"),
            tool(self.forbidden, name="forbidden", effects="none", authorise=lambda given, context: False),
            tool(self.breaks, name="breaks", effects="none"),
            tool(self.slow, name="slow", effects="none", timeout=0.05),
            tool(self.flaky, name="flaky", effects="idempotent", retries=1),
            tool(self.stuck, name="stuck"),
            tool(self.pay, name="pay", effects="side", compensate=lambda given, result, context: None),
            tool(self.asks, name="asks", effects="side", requires_approval=True),
        ]

    async def refuses(self) -> None:
        raise Denied("this account is closed")

    async def forbidden(self) -> None: ...

    async def breaks(self) -> None:
        raise RuntimeError("out of order, see https://me:hunter2hunter2@bank")

    async def slow(self) -> None:
        await asyncio.Event().wait()

    async def flaky(self) -> str:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("the line broke")
        return "done"

    async def stuck(self) -> None:
        self.stands.set()
        await asyncio.Event().wait()

    async def pay(self, cents: int) -> str:
        return f"paid {cents}"

    async def asks(self) -> None: ...


async def told(handle: RunHandle[Any]) -> Explanation:
    return await handle.explain()


def lines(explanation: Explanation) -> list[str]:
    return str(explanation).splitlines()


def verdicts(explanation: Explanation) -> dict[str, Verdict]:
    return {call.tool: call.verdict for call in explanation.calls}


async def test_what_became_of_each_call_is_told_apart(runtime: LocalRuntime) -> None:
    bank = Bank()
    calls = [
        wants("payy", cents=1),
        wants("pay", cents="many"),
        *map(wants, ("forbidden", "refuses", "breaks", "slow")),
    ]
    await host_model(runtime, says([*calls, wants("flaky"), wants("pay", cents=5)], wants("stuck")), tools=bank.tools)
    handle = await Runs(runtime).start("assistant", "go")
    await asyncio.wait_for(bank.stands.wait(), 10)
    await handle.cancel("enough")
    await handle.result()  # it is taken back before that
    explanation = await told(handle)
    assert [(call.tool, call.verdict) for call in explanation.calls] == [
        ("payy", Verdict.WRONG_TOOL),
        ("pay", Verdict.WRONG_ARGUMENTS),
        ("forbidden", Verdict.NEVER_RAN),
        ("refuses", Verdict.FAILED),
        ("breaks", Verdict.FAILED),
        ("slow", Verdict.TIMED_OUT),
        ("flaky", Verdict.REPEATED),
        ("pay", Verdict.SUCCEEDED),
        ("stuck", Verdict.NOT_RECORDED),
    ]
    assert [call.attempts for call in explanation.calls] == [0, 0, 0, 1, 1, 1, 2, 1, 1]
    assert [call.undone for call in explanation.calls].count(True) == 1


async def test_it_is_told_in_the_order_in_which_one_looks(runtime: LocalRuntime) -> None:
    """The model's answers, what did not fit, how it stands, what was done, why it ended; without credentials."""
    bank = Bank()
    model = says("x", [wants("pay", cents="many"), wants("breaks")], "7")
    await host_model(runtime, model, tools=bank.tools, output_type=int)
    handle = await Runs(runtime).start("assistant", "go", conversation="c")
    await handle.result()
    text = [line.replace(handle.run_id, "RUN") for line in lines(await told(handle))]
    ids = [call.call_id for call in (await told(handle)).calls]
    assert text[0] == "run RUN: succeeded"
    sections = [line for line in text if not line.startswith(" ")]
    assert sections == ["run RUN: succeeded", "model output", "schema", "state", "side effects", "end"]
    answers = text[text.index("model output") + 1 : text.index("schema")]
    assert answers == [
        "  step 1: an answer that did not fit",
        "  step 2: calls pay, breaks",
        "  step 3: final output: 7",
    ]
    misfits = text[text.index("schema") + 1 : text.index("state")]
    assert misfits[0].startswith("  step 1: output: ")
    assert misfits[1].startswith(f"  step 2: pay [{ids[0]}]: wrong arguments, it never ran: ")
    assert text[text.index("state") + 1] == "  step 3, 1 answer that did not fit, nothing pending"
    done = text[text.index("side effects") + 1 : text.index("end")]
    assert done[0].startswith(f"  step 2: pay [{ids[0]}]: wrong arguments, it never ran (invalid_arguments): ")
    assert done[1].startswith(f"  step 2: breaks [{ids[1]}]: it ran, and failed (business): RuntimeError: out of order")
    assert text[-1] == "  succeeded (final_output): 7"
    assert "hunter2" not in "".join(text)


async def test_a_run_that_waits_says_for_what(runtime: LocalRuntime) -> None:
    await host_model(runtime, says([wants("asks"), wants("pay", cents=1)], "sorry"), tools=Bank().tools)
    handle = await Runs(runtime).start("assistant", "go")

    async def waits() -> bool:
        return await handle.status() is RunStatus.WAITING

    await eventually(waits)
    text = lines(await told(handle))
    (call_id,) = [call.call_id for call in (await told(handle)).calls if call.verdict is Verdict.OPEN][:1]
    assert any(line.endswith(f"waits for approval of asks [{call_id}]") for line in text)
    assert text[-1] == "  it goes on"
    (pending,) = await Approvals(runtime).list()
    await Approvals(runtime).reject(pending.request.id, "not today")
    await handle.result()
    assert verdicts(await told(handle))["asks"] is Verdict.NEVER_RAN


async def test_a_run_that_is_exhausted_says_so(runtime: LocalRuntime) -> None:
    await host_model(runtime, says(wants("pay", cents=1)), tools=Bank().tools, limits=Limits(max_steps=1))
    handle = await Runs(runtime).start("assistant", "go")
    await handle.result()
    assert lines(await told(handle))[-1].startswith("  failed (max_steps): the task is unfinished")
    assert verdicts(await told(handle)) == {"pay": Verdict.NEVER_RAN}


async def test_of_an_unknown_run_nothing_is_told(runtime: LocalRuntime) -> None:
    await host_model(runtime, says("x"))
    handle = await Runs(runtime).start("assistant", "go")
    await handle.result()
    with pytest.raises(UnknownRun):
        explain(await handle.state(), "assistant/c#nothing")
