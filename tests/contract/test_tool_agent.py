"""`ToolAgent` takes the place of AutoGen's, keeps calls in order, and lets those overlap that may."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from autogen_core import AgentId, CancellationToken, FunctionCall, MessageContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)
from autogen_core.tool_agent import (
    InvalidToolArgumentsException,
    ToolException,
    ToolExecutionException,
    ToolNotFoundException,
    tool_agent_caller_loop,
)
from autogen_core.tools import FunctionTool, StaticWorkbench

from stagebell import deadline, remaining
from stagebell.errors import BusinessError, DeadlineExceeded
from stagebell.testing import ScriptedModel
from stagebell.tools.agent import ToolAgent
from stagebell.tools.approvals import Approvals
from stagebell.tools.context import ToolContext
from stagebell.tools.guardrails import Guardrail, Rewrite, Subject, Verdict
from stagebell.tools.lifecycle import Step, ToolEvent
from stagebell.tools.tool import tool
from tests.support.agents import Answer, Ask, Doing, agent, host
from tests.support.waiting import eventually

TOOLS = AgentId("tools", "one")
started = threading.Event()


class Log:
    """What the tools of a test did, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.keys: list[str] = []
        self.meeting = asyncio.Event()
        self.runtime: Any = None

    async def work(self, name: str, together: int = 1) -> str:
        """Work, and end only when so many have begun."""
        self.entries.append(f"{name} begins")
        if len(self.entries) == together:
            self.meeting.set()
        await asyncio.wait_for(self.meeting.wait(), 10)
        await asyncio.sleep(0)
        self.entries.append(f"{name} ends")
        return name


@tool
async def work(context: ToolContext[Log], name: str) -> str:
    """Work."""
    context.deps.keys.append(context.idempotency_key)
    return await context.deps.work(name)


@tool(parallel_safe=True, effects="none")
async def look(context: ToolContext[Log], name: str) -> str:
    return await context.deps.work(name, together=3)


@tool(reads={"stock"}, effects="none")
async def count(context: ToolContext[Log], name: str) -> str:
    return await context.deps.work(name, together=2)


@tool(writes={"stock"}, effects="idempotent")
async def take(context: ToolContext[Log], name: str) -> str:
    return await context.deps.work(name)


@tool(effects="none")
def shout(text: str) -> dict[str, str]:
    return {"said": text.upper()}


@tool(effects="none")
async def broken() -> None:
    raise BusinessError("the till is closed")


async def wait_for_ever() -> None:
    started.set()
    await asyncio.Event().wait()


def repeat(text: str) -> str:
    return text


def fail(text: str) -> str:
    raise LookupError(f"no {text}")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def runtime_with_tools(runtime: Any, start: Any, log: Log) -> Any:
    def make() -> ToolAgent[Log]:
        theirs = [FunctionTool(repeat, "Repeats."), FunctionTool(fail, "Fails."), FunctionTool(wait_for_ever, "Waits.")]
        return ToolAgent("Tools.", [work, look, count, take, shout, broken, *theirs], deps=log)

    await ToolAgent.register(runtime, "tools", make)
    return await start(runtime)


def call(name: str, /, id: str = "1", **arguments: Any) -> FunctionCall:
    return FunctionCall(id=id, name=name, arguments=json.dumps(arguments))


async def send(runtime: Any, message: FunctionCall, **options: Any) -> Any:
    return await asyncio.wait_for(runtime.send_message(message, TOOLS, **options), 10)


async def test_a_call_is_answered_with_its_result(runtime_with_tools: Any) -> None:
    assert await send(runtime_with_tools, call("repeat", text="ä")) == FunctionExecutionResult(
        content="ä", call_id="1", is_error=False, name="repeat"
    )
    assert (await send(runtime_with_tools, call("shout", id="7", text="ä"))).content == '{"said":"Ä"}'


@pytest.mark.parametrize(
    ("message", "error", "code", "text"),
    [
        (call("nothing"), ToolNotFoundException, "unknown_tool", "there is no tool 'nothing'"),
        (FunctionCall(id="1", name="work", arguments="{x"), InvalidToolArgumentsException, "invalid_arguments", "JSON"),
        (call("work"), InvalidToolArgumentsException, "invalid_arguments", "name: Field required"),
        (call("repeat"), InvalidToolArgumentsException, "invalid_arguments", "text: Field required"),
        (call("fail", text="bread"), ToolExecutionException, "business", "LookupError: no bread"),
        (call("broken"), ToolExecutionException, "business", "the till is closed"),
    ],
)
async def test_a_call_without_a_value_raises_what_callers_of_autogen_expect(
    runtime_with_tools: Any, message: FunctionCall, error: type[ToolException], code: str, text: str
) -> None:
    with pytest.raises(error) as raised:
        await send(runtime_with_tools, message)
    assert (raised.value.call_id, raised.value.name) == ("1", message.name)
    assert text in str(raised.value)
    assert text in raised.value.content
    assert vars(raised.value)["code"] == code


async def test_errors_can_be_results(runtime: Any, start: Any) -> None:
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [broken], errors="return"))
    await start(runtime)
    assert await send(runtime, call("broken")) == FunctionExecutionResult(
        content="the till is closed", call_id="1", is_error=True, name="broken"
    )


async def test_calls_run_one_after_the_other_in_order(runtime_with_tools: Any, log: Log) -> None:
    calls = [send(runtime_with_tools, call("work", name=str(at))) for at in range(5)]
    assert [result.content for result in await asyncio.gather(*calls)] == list("01234")
    assert log.entries == [f"{at} {what}" for at in range(5) for what in ("begins", "ends")]
    assert len(set(log.keys)) == 5


async def test_calls_that_may_overlap_do(runtime_with_tools: Any, log: Log) -> None:
    await asyncio.gather(*(send(runtime_with_tools, call("look", name=str(at))) for at in range(3)))
    assert {entry.partition(" ")[2] for entry in log.entries[:3]} == {"begins"}


async def test_calls_that_conflict_wait_for_each_other(runtime_with_tools: Any, log: Log) -> None:
    names = [("count", "a"), ("count", "b"), ("take", "c"), ("take", "d"), ("count", "e"), ("work", "f")]
    await asyncio.gather(*(send(runtime_with_tools, call(tool, name=name)) for tool, name in names))
    assert set(log.entries[:2]) == {"a begins", "b begins"}
    assert log.entries[4:] == [f"{name} {what}" for name in "cdef" for what in ("begins", "ends")]


async def test_cancelling_ends_the_tool_and_frees_the_line(runtime_with_tools: Any, log: Log) -> None:
    started.clear()
    token = CancellationToken()
    waiting = asyncio.create_task(send(runtime_with_tools, call("wait_for_ever"), cancellation_token=token))
    behind = asyncio.create_task(send(runtime_with_tools, call("work", name="next")))
    await eventually(started.is_set)
    assert not behind.done()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await behind).content == "next"


@tool
async def forward(context: ToolContext[Log], to: str) -> str:
    """Call another agent, and say how much time it had."""
    left = remaining()
    answer = await context.deps.runtime.send_message(Ask(), agent("below"))
    return f"{to}: {answer.text}, {left is not None and 0 < left <= 30}"


async def below(runtime: Any, start: Any, log: Log) -> tuple[Any, threading.Event]:
    """A runtime whose tool calls an agent that answers at once, or never if the log says so; and that it has ended."""
    ended = threading.Event()

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        started.set()
        if not log.entries:
            return Answer(text="below")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Answer(text="")

    log.runtime = runtime
    await host(runtime, "below", ask)
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [forward], deps=log))
    return await start(runtime), ended


async def test_a_tool_calls_an_agent_within_the_time_of_its_own_call(runtime: Any, start: Any, log: Log) -> None:
    runtime, _ = await below(runtime, start, log)
    assert (await send(runtime, call("forward", to="a"))).content == "a: below, False"
    with deadline(30):
        assert (await send(runtime, call("forward", to="b"))).content == "b: below, True"


@pytest.mark.parametrize("by", ["token", "deadline"])
async def test_cancelling_goes_through_the_tool_to_whom_it_calls(runtime: Any, start: Any, log: Log, by: str) -> None:
    runtime, ended = await below(runtime, start, log)
    log.entries.append("wait")
    started.clear()
    token = CancellationToken()
    with deadline(1.0 if by == "deadline" else 30):
        waiting = asyncio.create_task(send(runtime, call("forward", to="a"), cancellation_token=token))
    await eventually(started.is_set)
    if by == "token":
        token.cancel()
    with pytest.raises(asyncio.CancelledError if by == "token" else DeadlineExceeded):
        await waiting
    await eventually(ended.is_set)


async def test_a_call_that_comes_out_of_another_is_let_in_before_those_that_wait(
    runtime: Any, start: Any, log: Log
) -> None:
    gate = asyncio.Event()

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        started.set()
        await gate.wait()
        result = await doing.send_message(call("work", name="inner"), TOOLS)
        return Answer(text=result.content)

    log.runtime = runtime
    await host(runtime, "below", ask)
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [forward, work], deps=log))
    await start(runtime)
    started.clear()
    outer = asyncio.create_task(send(runtime, call("forward", to="outer")))
    await eventually(started.is_set)
    behind = asyncio.create_task(send(runtime, call("work", name="behind")))
    tools = await runtime.try_get_underlying_agent_instance(TOOLS, ToolAgent)
    await eventually(lambda: len(tools._line._places) == 2)
    gate.set()
    assert (await outer).content == "outer: inner, False"
    assert (await behind).content == "behind"
    assert log.entries == ["inner begins", "inner ends", "behind begins", "behind ends"]


async def test_the_caller_loop_of_autogen_works_unchanged(runtime_with_tools: Any) -> None:
    model = ScriptedModel(
        [
            [call("repeat", id="1", text="a"), call("fail", id="2", text="bread"), call("nothing", id="3")],
            [call("shout", id="4", text="b")],
            "done",
        ]
    )
    tools = [FunctionTool(repeat, "Repeats."), shout]
    asked: list[LLMMessage] = [UserMessage(content="go", source="user")]
    messages = await tool_agent_caller_loop(runtime_with_tools, TOOLS, model, asked, tools)
    kinds = [AssistantMessage, FunctionExecutionResultMessage] * 2 + [AssistantMessage]
    assert [type(message) for message in messages] == kinds
    first = messages[1].content
    assert [(result.call_id, result.is_error) for result in first] == [("1", False), ("2", True), ("3", True)]
    assert [result.content for result in first][1] == "Error: LookupError: no bread"
    assert messages[3].content[0].content == '{"said":"B"}'
    assert messages[4].content == "done"


async def test_the_tools_of_a_workbench(runtime: Any, start: Any) -> None:
    events: list[ToolEvent] = []

    def make() -> ToolAgent[None]:
        return ToolAgent("Tools.", [shout, StaticWorkbench([FunctionTool(repeat, "")])], on_event=events.append)

    await ToolAgent.register(runtime, "tools", make)
    await start(runtime)
    assert (await send(runtime, call("repeat", text="a"))).content == "a"
    assert [event.step for event in events] == list(Step)


@pytest.fixture
async def asking(runtime: Any, start: Any) -> Any:
    """A runtime with a tool that needs approval."""
    tools = [tool(repeat, requires_approval=True)]
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", tools), approvals=True)
    return await start(runtime)


async def asked(runtime: Any) -> tuple[asyncio.Task[Any], str]:
    """A call that waits for a person, and its id at the desk."""
    waiting = asyncio.create_task(send(runtime, call("repeat", text="a")))
    (pending,) = await eventually(Approvals(runtime).list, 10)
    assert not waiting.done()
    return waiting, pending.request.id


async def test_a_call_waits_for_a_person_who_agrees(asking: Any) -> None:
    waiting, id = await asked(asking)
    await Approvals(asking).approve(id)
    assert await waiting == FunctionExecutionResult(content="a", call_id="1", is_error=False, name="repeat")


def twice(subject: Subject) -> Verdict:
    return Rewrite({"text": subject.value["text"] * 2})


async def test_a_person_sees_what_would_run(runtime: Any, start: Any) -> None:
    tools = [tool(repeat, requires_approval=True)]
    options = {"guardrails": [Guardrail(twice)]}
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", tools, **options), approvals=True)
    await start(runtime)
    waiting, id = await asked(runtime)
    (pending,) = await Approvals(runtime).list()
    assert pending.request.call.arguments == '{"text": "aa"}'
    await Approvals(runtime).approve(id)
    assert (await waiting).content == "aa"


async def test_a_call_without_an_id_is_a_call(asking: Any) -> None:
    waiting = asyncio.create_task(send(asking, call("repeat", id="", text="a")))
    (pending,) = await eventually(Approvals(asking).list, 10)
    await Approvals(asking).approve(pending.request.id)
    assert await waiting == FunctionExecutionResult(content="a", call_id="", is_error=False, name="repeat")


async def test_a_person_changes_the_arguments(asking: Any) -> None:
    waiting, id = await asked(asking)
    await Approvals(asking).edit(id, {"text": "b"})
    assert (await waiting).content == "b"


async def test_a_person_does_not_agree(asking: Any) -> None:
    waiting, id = await asked(asking)
    await Approvals(asking).reject(id, "not today")
    with pytest.raises(ToolExecutionException, match="it was not approved: not today") as raised:
        await waiting
    assert vars(raised.value)["code"] == "denied"


async def test_nobody_decides_in_time(runtime: Any, start: Any) -> None:
    def make() -> ToolAgent[None]:
        return ToolAgent("Tools.", [tool(repeat, requires_approval=True)], approvals_expire_after=0.2)

    await ToolAgent.register(runtime, "tools", make, approvals=True)
    await start(runtime)
    with pytest.raises(ToolExecutionException, match="it was not approved: nobody decided in time"):
        await send(runtime, call("repeat", text="a"))


async def test_a_tool_that_wants_a_person_is_refused_without_a_desk(runtime: Any, start: Any) -> None:
    asking = tool(repeat, requires_approval=True)
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [asking]))
    await ToolAgent.register(runtime, "others", lambda: ToolAgent("Tools.", [asking], errors="return"))
    await start(runtime)
    with pytest.raises(ToolExecutionException, match="register with approvals=True") as raised:
        await send(runtime, call("repeat", text="a"))
    assert vars(raised.value)["code"] == "denied"
    result = await runtime.send_message(call("repeat", text="a"), AgentId("others", "one"))
    assert result.is_error
    assert "register with approvals=True" in result.content
