"""Runs that wait for a person: an approval, an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stagebell.agents.runs import RunHandle, Runs
from stagebell.errors import AlreadyDecided
from stagebell.messages.conversation import Noted, RunStatus
from stagebell.tools.approvals import Approvals
from stagebell.tools.tool import tool
from tests.support.loops import host_model, reaches, says, sent, wants
from tests.support.waiting import eventually


async def followed(handle: RunHandle[Any], offset: int = 0) -> list[Any]:
    """What happens in a run until its end."""
    return [happened async for happened in handle.events(offset)]


async def test_an_approval_is_waited_for_and_decided_once(runtime: Any, start: Any) -> None:
    paid: list[int] = []

    @tool(effects="side", requires_approval=lambda arguments: arguments["amount"] > 10)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    await host_model(runtime, says([wants("pay", amount=5), wants("pay", amount=50)], "done"), tools=[pay])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "pay")
    await reaches(handle, RunStatus.WAITING)
    (wait,) = (await handle.state()).control.active.waiting_for
    asked = {"id": f"{handle.run_id}:{wait.call_id}", "tool": "pay", "arguments": {"amount": 50}}
    assert (wait.kind, wait.payload) == ("approval", asked)
    assert paid == [5]
    approvals = Approvals(runtime)
    (pending,) = await approvals.list()
    assert pending.request.id == asked["id"]
    await approvals.edit(pending.request.id, {"amount": 20})
    with pytest.raises(AlreadyDecided):
        await approvals.reject(pending.request.id, "too late")
    assert (await handle.result()).output == "done"
    assert paid == [5, 20]
    entries = [each.entry for each in await followed(handle)]
    assert any(isinstance(entry, Noted) and entry.what == "approval" for entry in entries)


async def test_a_call_that_is_rejected_is_not_made(runtime: Any, start: Any) -> None:
    paid: list[int] = []

    @tool(effects="side", requires_approval=True)
    def pay(amount: int) -> None:
        """Pay."""
        paid.append(amount)

    model = await host_model(runtime, says(wants("pay", amount=5), "not paid"), tools=[pay])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "pay")
    await reaches(handle, RunStatus.WAITING)
    (pending,) = await Approvals(runtime).list()
    await Approvals(runtime).reject(pending.request.id, "not this month")
    assert (await handle.result()).output == "not paid"
    assert "not this month" in sent(model)
    assert not paid


async def test_nobody_decides_in_time(runtime: Any, start: Any) -> None:
    @tool(effects="side", requires_approval=True)
    def pay() -> None:
        """Pay."""

    model = await host_model(runtime, says(wants("pay"), "not paid"), tools=[pay], approval_timeout=0.2)
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "pay")
    assert (await asyncio.wait_for(handle.result(), 10)).output == "not paid"
    assert "nobody decided" in sent(model)


async def test_a_run_that_ends_asks_for_no_approval_any_more(runtime: Any, start: Any) -> None:
    @tool(effects="side", requires_approval=True)
    def pay() -> None:
        """Pay."""

    await host_model(runtime, says(wants("pay")), tools=[pay])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "pay")
    await reaches(handle, RunStatus.WAITING)
    await handle.cancel()

    async def nothing_waits() -> bool:
        return not await Approvals(runtime).list()

    await eventually(nothing_waits, within=10)


async def test_a_person_is_asked(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, says(wants("ask_person", question="which one?"), "blue"), ask_person=True)
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "paint")
    await reaches(handle, RunStatus.WAITING)
    run = (await handle.state()).control.active
    assert run is not None
    assert run.waiting_for[0].payload == "which one?"
    await handle.answer(run.waiting_for[0].call_id, "the blue one")
    assert (await handle.result()).output == "blue"
    assert "the blue one" in sent(model)
