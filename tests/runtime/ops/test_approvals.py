"""`stagebell approvals`: listed and decided from a shell, also when no process of the application is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler

from stagebell import Publisher, RedisRuntime, defer_reply
from stagebell.messages.tool_calls import ToolCall
from stagebell.runtime.engine.deferred import DeferredReply
from stagebell.tools.approval_messages import ApprovalDecision, ApprovalRequest
from stagebell.tools.approvals import Approvals, ask_for_approval, register_desk
from tests.runtime.ops.commands import Shell
from tests.support.agents import Answer, Ask
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

TILL = AgentId("till", "eu")


class Till(RoutedAgent):
    """Answers a call when a person has agreed."""

    def __init__(self) -> None:
        super().__init__("till")
        self.waiting: dict[str, str] = {}

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> Answer | None:
        id = f"r1:{message.text}"
        self.waiting[id] = str(defer_reply())
        call = ToolCall(id=message.text, name="refund", arguments='{"cents": 500}')
        request = ApprovalRequest(id=id, run_id="r1", call=call, agent=str(self.id), reason="large")
        await ask_for_approval(self.runtime, request)
        return None

    @message_handler
    async def on_decision(self, message: ApprovalDecision, ctx: MessageContext) -> None:
        answer = f"{message.verdict} {message.arguments} {message.reason} {message.by}"
        await DeferredReply(self.waiting.pop(message.id)).answer(Answer(text=answer))

    async def save_state(self) -> Mapping[str, Any]:
        return {"waiting": self.waiting}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.waiting = dict(state["waiting"])


async def application(url: str, namespace: str) -> RedisRuntime:
    runtime = RedisRuntime(url, namespace=namespace)
    await Till.register(runtime, "till", Till)
    await register_desk(runtime)
    await runtime.start()
    return runtime


async def run(shell: Shell, *arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(shell.run, "approvals", *arguments)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


async def until_waiting(publisher: Publisher, count: int) -> None:
    async def reached() -> bool:
        return len(await Approvals(publisher).list()) == count

    await eventually(reached, 20)


async def test_a_person_decides_from_a_shell(
    shell: Shell, publisher: Publisher, locked_url: str, namespace: str
) -> None:
    runtime = await application(locked_url, namespace)
    texts = ("a", "b", "c")
    calls = {text: asyncio.create_task(runtime.send_message(Ask(text=text), TILL)) for text in texts}
    await until_waiting(publisher, 3)
    (code, out, _), as_json = await asyncio.gather(run(shell, "list"), run(shell, "list", "--json"))
    assert (code, "3" in out.splitlines()[0], "r1:b" in out, '{"cents": 500}' in out) == (0, True, True, True)
    found = json.loads(as_json[1])["approvals"]
    assert [(each["tool"], each["arguments"], each["agent"]) for each in found] == [
        ("refund", {"cents": 500}, "till/eu")
    ] * 3
    approved, edited, rejected, wrong = await asyncio.gather(
        run(shell, "approve", "r1:a", "--by", "ann"),
        run(shell, "approve", "r1:b", "--by", "ben", "--arguments", '{"cents": 1}'),
        run(shell, "reject", "r1:c", "--by", "cat", "--reason", "too much"),
        run(shell, "approve", "r1:a", "--arguments", "[1]"),
    )
    assert approved == (0, "approved r1:a", "")
    assert (edited[0], rejected[:2], wrong[0]) == (0, (0, "rejected r1:c"), 2)
    answers = [(await asyncio.wait_for(calls[text], 10)).text for text in texts]
    assert answers == ["approve None  ann", "edit {'cents': 1}  ben", "reject None too much cat"]
    again, unknown = await asyncio.gather(run(shell, "reject", "r1:a"), run(shell, "approve", "r1:z"))
    assert (again[0], "was decided before (approve, by ann)" in again[2]) == (1, True)
    assert (unknown[0], "no approval 'r1:z' is waited for" in unknown[2]) == (1, True)
    await runtime.close()


async def test_every_process_ends_between_request_and_decision(
    shell: Shell, publisher: Publisher, locked_url: str, namespace: str
) -> None:
    publisher.register(Answer)
    first = await application(locked_url, namespace)
    call = asyncio.create_task(publisher.call(Ask(text="a"), TILL, timeout=60))
    await until_waiting(publisher, 1)
    await first.close()
    (code, out, _), listed = await asyncio.gather(
        run(shell, "approve", "r1:a", "--by", "ann"), run(shell, "list", "--json")
    )
    assert "r1:a" in listed[1]
    assert (code, out) == (
        0,
        "approved r1:a: no worker is there, the decision is kept and takes effect when one starts",
    )
    code, _, problem = await run(shell, "approve", "nothing")
    assert (code, "no approval 'nothing' is waited for" in problem) == (1, True)
    second = await application(locked_url, namespace)
    assert (await asyncio.wait_for(call, 20)).text == "approve None  ann"
    await until_waiting(publisher, 0)
    await second.close()


async def test_nobody_has_ever_asked(shell: Shell) -> None:
    listed, approved = await asyncio.gather(run(shell, "list", "--json"), run(shell, "approve", "r1:a"))
    assert (listed[0], json.loads(listed[1])) == (0, {"approvals": []})
    assert (approved[0], "no approval 'r1:a' is waited for" in approved[2]) == (1, True)
