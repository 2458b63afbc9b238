"""Calls that wait for a person: asked for, listed, decided once, and told to the agent that asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import ValidationError

from stagebell import agent_options
from stagebell.errors import AlreadyDecided, Undeliverable, UnknownApproval, UnregisteredType
from stagebell.messages.tool_calls import ToolCall
from stagebell.tools.approval_messages import ApprovalDecision, ApprovalRequest
from stagebell.tools.approvals import Approvals, ask_for_approval, desk_of, register_desk
from tests.support.agents import Answer, Ask, Note, agent
from tests.support.waiting import eventually

CALL = ToolCall(id="c1", name="refund", arguments='{"cents": 500}')


class Asking(RoutedAgent):
    """Asks for what it is told to, and remembers what was decided."""

    def __init__(self) -> None:
        super().__init__("asks")
        self.told: list[str] = []

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> Answer:
        expires = int(time.time() * 1000) + message.number if message.number else None
        request = ApprovalRequest(
            id=message.text, run_id="r1", call=CALL, agent=str(self.id), reason="large", expires_at=expires
        )
        await ask_for_approval(self.runtime, request)
        return Answer(text="asked")

    @message_handler
    async def on_decision(self, message: ApprovalDecision, ctx: MessageContext) -> None:
        known = message.run_id, message.call_id, str(ctx.sender)
        assert known == ("r1", "c1", str(desk_of(message.id)))
        self.told.append(f"{message.id} {message.verdict} {message.arguments} {message.reason} {message.by}")

    @message_handler
    async def on_note(self, message: Note, ctx: MessageContext) -> Answer:
        return Answer(text="\n".join(self.told))

    async def save_state(self) -> Mapping[str, Any]:
        return {"told": self.told}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.told = list(state["told"])


@agent_options(process_bound=True)
class AskingHere(Asking):
    """Lives in the process that registered it."""


ASKS = agent("asks")


@pytest.fixture
async def office(runtime: Any, start: Any) -> Any:
    """A runtime with an agent that asks, and the desk."""
    await Asking.register(runtime, "asks", Asking)
    await asyncio.gather(*(register_desk(runtime) for _ in range(3)))
    await start(runtime)
    return runtime


async def ask(runtime: Any, *ids: str, within: int = 0, to: AgentId = ASKS) -> None:
    for id in ids:
        await runtime.send_message(Ask(text=id, number=within), to)
    waiting = set(ids)

    async def arrived() -> bool:
        return {each.request.id for each in await Approvals(runtime).list()} >= waiting

    await eventually(arrived, 10)


async def told(runtime: Any, count: int, by: AgentId = ASKS) -> list[str]:
    async def enough() -> list[str]:
        answer = await runtime.send_message(Note(), by)
        lines: list[str] = answer.text.splitlines()
        return lines if len(lines) >= count else []

    found: list[str] = await eventually(enough, 10)
    return found


async def test_what_waits_is_listed_the_oldest_first(office: Any) -> None:
    before = int(time.time() * 1000)
    ids = [f"r1:c{number}" for number in range(5)]
    await ask(office, *ids)
    found = await Approvals(office).list()
    assert [each.request.id for each in found] == ids
    assert {(each.request.call, each.request.agent, each.request.reason) for each in found} == {
        (CALL, "asks/default", "large")
    }
    assert all(before <= each.asked_at <= time.time() * 1000 for each in found)


async def test_each_verdict_is_told_once(office: Any) -> None:
    approvals = Approvals(office)
    await ask(office, "a", "b", "c")
    assert await approvals.approve("a", by="ann") is True
    assert await approvals.edit("b", {"cents": 1}, by="ben") is True
    assert await approvals.reject("c", "too much", by="cat") is True
    assert await told(office, 3) == ["a approve None  ann", "b edit {'cents': 1}  ben", "c reject None too much cat"]
    assert await approvals.list() == []


async def test_a_second_decision_names_the_first(office: Any) -> None:
    approvals = Approvals(office)
    await ask(office, "a")
    results = await asyncio.gather(
        *(approvals.reject("a", by=f"p{number}") for number in range(5)), return_exceptions=True
    )
    assert results.count(True) == 1
    refused = [each for each in results if isinstance(each, AlreadyDecided)]
    assert [(each.id, each.verdict) for each in refused] == [("a", "reject")] * 4
    assert len(await told(office, 1)) == 1


async def test_what_nobody_asked_for_cannot_be_decided(office: Any) -> None:
    with pytest.raises(UnknownApproval, match="nothing here"):
        await Approvals(office).approve("nothing here")
    await ask(office, "a")
    with pytest.raises(ValueError, match="it expires by itself"):
        await office.send_message(ApprovalDecision(id="a", verdict="expired"), desk_of("a"))


async def test_it_expires(office: Any) -> None:
    await ask(office, "soon", within=400)
    assert await told(office, 1) == ["soon expired None nobody decided in time "]
    with pytest.raises(AlreadyDecided, match="expired"):
        await Approvals(office).approve("soon")
    assert await Approvals(office).list() == []


async def test_one_that_was_decided_does_not_expire(office: Any) -> None:
    await ask(office, "decided", within=500)
    await Approvals(office).approve("decided")
    await told(office, 1)
    await ask(office, "open", within=500)  # expires later than the other one would
    first, second = await told(office, 2)
    assert first.startswith("decided approve ")
    assert second.startswith("open expired")


async def test_asked_again_it_is_told_again(office: Any) -> None:
    await ask(office, "a")
    await office.send_message(Ask(text="a"), ASKS)
    assert len(await Approvals(office).list()) == 1
    await Approvals(office).approve("a")
    await told(office, 1)
    await office.send_message(Ask(text="a"), ASKS)
    assert await told(office, 2) == ["a approve None  "] * 2


async def test_a_desk_that_is_full_lets_nobody_wait_for_ever(office: Any) -> None:
    large = CALL.model_copy(update={"arguments": "x" * 150_000})
    ids = [id for id in map(str, range(1000)) if desk_of(id) == desk_of("0")][:3]
    for id in ids:
        request = ApprovalRequest(id=id, run_id="r1", call=large, agent=str(ASKS))
        await ask_for_approval(office, request)
    (line,) = await told(office, 1)
    assert line.startswith(f"{ids[2]} reject None too much waits for a person already: 2 requests")
    assert [each.request.id for each in await Approvals(office).list()] == ids[:2]


async def test_a_decision_may_be_sent_as_a_message(office: Any) -> None:
    await ask(office, "a")
    await office.schedule(ApprovalDecision(id="a", verdict="approve"), desk_of("a"), delay=0)
    assert await told(office, 1) == ["a approve None  "]


@pytest.mark.needs(any_object=False)
async def test_a_runtime_without_the_desk_decides_too(office: Any, make_runtime: Any, start: Any) -> None:
    await ask(office, "a", "b")
    other = await start(make_runtime())
    assert [each.request.id for each in await Approvals(other).list()] == ["a", "b"]
    assert await Approvals(other).approve("a") is True
    with pytest.raises(AlreadyDecided):
        await Approvals(other).approve("a")
    assert await told(office, 1) == ["a approve None  "]


@pytest.mark.needs(any_object=False)
async def test_without_a_worker_a_decision_is_kept(office: Any, make_runtime: Any, start: Any) -> None:
    await ask(office, "a", "b")
    await office.stop()
    other = await start(make_runtime())
    assert [each.request.id for each in await Approvals(other).list()] == ["a", "b"]
    assert await Approvals(other).reject("a", "no") is False
    assert await Approvals(other).approve("a") is False  # and comes too late
    await start(office)
    assert await told(office, 1) == ["a reject None no "]
    await asyncio.wait_for(office.stop_when_idle(), 10)
    await start(office)
    assert await told(office, 1) == ["a reject None no "]


async def test_an_agent_of_one_process_asks_too(office: Any) -> None:
    await AskingHere.register(office, "here", AskingHere)
    here = agent("here")
    await ask(office, "a", to=here)
    await Approvals(office).approve("a")
    assert await told(office, 1, here) == ["a approve None  "]


async def test_where_there_is_no_desk_nobody_can_ask(runtime: Any, start: Any) -> None:
    await Asking.register(runtime, "asks", Asking)
    await start(runtime)
    with pytest.raises((Undeliverable, UnregisteredType), match=r"stagebell\.approvals|ApprovalRequest"):
        await runtime.send_message(Ask(text="a"), ASKS)
    assert await Approvals(runtime).list() == []


@pytest.mark.unit
def test_arguments_come_with_an_edit_alone() -> None:
    for verdict, arguments in (("edit", None), ("approve", {"a": 1}), ("reject", {})):
        with pytest.raises(ValidationError, match="the arguments to run with"):
            ApprovalDecision.model_validate({"id": "a", "verdict": verdict, "arguments": arguments})
    assert ApprovalDecision(id="a", verdict="edit", arguments={}).approved
    assert not ApprovalDecision(id="a", verdict="expired").approved
    assert len({desk_of(str(number)) for number in range(2000)}) == 64
