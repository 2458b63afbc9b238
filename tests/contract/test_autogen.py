"""AutoGen's own agents and helpers on the runtime, unchanged."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import (
    CancellationToken,
    ClosureAgent,
    ClosureContext,
    DefaultSubscription,
    DefaultTopicId,
    FunctionCall,
    MessageContext,
    RoutedAgent,
    message_handler,
)
from autogen_core.exceptions import CantHandleException
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from autogen_core.tool_agent import (
    InvalidToolArgumentsException,
    ToolAgent,
    ToolException,
    ToolExecutionException,
    ToolNotFoundException,
    tool_agent_caller_loop,
)
from autogen_core.tools import FunctionTool

from stagebell.testing import ScriptedModel
from tests.support.agents import Ask, Doing, Note, agent, host


def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def explode() -> str:
    """Raise."""
    raise ValueError("boom")


def tools() -> list[Any]:
    return [FunctionTool(add, description="add"), FunctionTool(explode, description="explode")]


def call(name: str, arguments: str = "{}", id: str = "1") -> FunctionCall:
    return FunctionCall(id=id, name=name, arguments=arguments)


async def with_tools(runtime: Any, start: Any) -> Any:
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("tools", tools()))
    await start(runtime)
    return runtime


async def test_a_tool_agent_answers(runtime: Any, start: Any) -> None:
    await with_tools(runtime, start)
    result = await runtime.send_message(call("add", '{"first": 2, "second": 3}'), agent("tools"))
    assert (result.content, result.call_id, result.is_error) == ("5", "1", False)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (call("missing"), ToolNotFoundException),
        (call("add", "not json"), InvalidToolArgumentsException),
        (call("explode"), ToolExecutionException),
    ],
    ids=["missing", "arguments", "raises"],
)
async def test_a_tool_agents_errors_keep_their_class_and_call(
    runtime: Any, start: Any, request_: FunctionCall, expected: type[ToolException]
) -> None:
    await with_tools(runtime, start)
    with pytest.raises(ToolException) as caught:
        await runtime.send_message(request_, agent("tools"))
    assert type(caught.value) is expected
    assert caught.value.call_id == "1"
    assert caught.value.name == request_.name


class Assistant(RoutedAgent):
    """Runs AutoGen's tool loop inside a handler."""

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__("assistant")
        self._model = model

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> Any:
        messages = await tool_agent_caller_loop(
            self,
            agent("tools"),
            self._model,
            [UserMessage(content=message.text, source="user")],
            tools(),
            cancellation_token=ctx.cancellation_token,
        )
        results = [item for item in messages if isinstance(item, FunctionExecutionResultMessage)]
        contents = [result.content for item in results for result in item.content]
        return [*contents, str(messages[-1].content)]


async def test_autogens_tool_loop_runs_inside_a_handler_and_outside(runtime: Any, start: Any) -> None:
    script: list[Any] = [
        [call("add", '{"first": 1, "second": 1}', "a"), call("add", '{"first": 2, "second": 2}', "b")],
        [call("explode", id="c")],
        "done",
    ]
    await Assistant.register(runtime, "assistant", lambda: Assistant(ScriptedModel(script)))
    await with_tools(runtime, start)
    answer = await runtime.send_message(Ask(text="add them"), agent("assistant"))
    assert answer[:2] == ["2", "4"]
    assert answer[2].startswith("Error")
    assert answer[-1] == "done"

    model = ScriptedModel([[call("add", '{"first": 3, "second": 4}')], "seven"])
    question = [UserMessage(content="3 + 4?", source="user")]
    messages = await tool_agent_caller_loop(runtime, agent("tools"), model, question, tools())
    assert messages[-1].content == "seven"


async def test_a_closure_agent_collects_what_others_publish(runtime: Any, start: Any) -> None:
    results: asyncio.Queue[Note] = asyncio.Queue()

    async def collect(context: ClosureContext, message: Note, ctx: MessageContext) -> None:
        await results.put(message)

    async def publish(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        for number in range(3):
            await agent.publish_message(Note(number=number), DefaultTopicId())

    await ClosureAgent.register_closure(runtime, "collect", collect, subscriptions=lambda: [DefaultSubscription()])
    await host(runtime, "publisher", publish)
    await start(runtime)
    await runtime.send_message(Ask(), agent("publisher"))
    await runtime.stop_when_idle()
    assert [results.get_nowait().number for _ in range(3)] == [0, 1, 2]


async def test_a_closure_agent_of_an_unset_type_policy_refuses_a_call(runtime: Any, start: Any) -> None:
    async def closure(context: ClosureContext, message: Note, ctx: MessageContext) -> None:
        return None

    await ClosureAgent.register_closure(runtime, "strict", closure, unknown_type_policy="error")
    await host(runtime, "other")
    await start(runtime)
    with pytest.raises(CantHandleException):
        await runtime.send_message(Ask(), agent("strict"))


def team(runtime: Any, turns: int = 4) -> RoundRobinGroupChat:
    members = [
        AssistantAgent(name, ScriptedModel(lambda messages, tools, name=name: f"{name} speaks"))
        for name in ("first", "second")
    ]
    return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(turns), runtime=runtime)


async def test_a_round_robin_team_takes_turns(runtime: Any, start: Any) -> None:
    await start(runtime)
    result = await asyncio.wait_for(team(runtime).run(task="begin"), 20)
    said = [(message.source, message.content) for message in result.messages]
    assert said == [
        ("user", "begin"),
        ("first", "first speaks"),
        ("second", "second speaks"),
        ("first", "first speaks"),
    ]


async def test_a_teams_state_moves_to_another_team(runtime: Any, start: Any, make_runtime: Any) -> None:
    await start(runtime)
    first = team(runtime)
    await asyncio.wait_for(first.run(task="begin"), 20)
    saved = json.loads(json.dumps(await first.save_state()))
    other = make_runtime(namespace="other-team")
    await start(other)
    second = team(other)
    await second.load_state(saved)
    assert json.loads(json.dumps(await second.save_state())) == saved
    await second.reset()
    assert json.loads(json.dumps(await second.save_state())) != saved


async def test_a_team_can_be_cancelled(runtime: Any, start: Any) -> None:
    asked = asyncio.Event()

    async def never(messages: Any, tools: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never said"

    await start(runtime)
    slow = RoundRobinGroupChat([AssistantAgent("slow", ScriptedModel(never))], max_turns=1, runtime=runtime)
    token = CancellationToken()
    running = asyncio.create_task(slow.run(task="begin", cancellation_token=token))
    await asyncio.wait_for(asked.wait(), 10)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 10)
