"""The same run by others: a scripted model that calls one tool so many times, one call in each answer, and then ends.

Each function makes its agent once and returns what runs it once. Tracing and telemetry are off where there is a switch.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypedDict

Run = Callable[[], Awaitable[None]]
"""Runs the agent once, and raises when it did not end as it must."""

ARGUMENTS = '{"a": 20, "b": 22}'
END = "done"


def appended(old: list[Any], new: list[Any]) -> list[Any]:
    """How LangGraph adds to the messages of its state."""
    return old + new


class State(TypedDict):
    """LangGraph's state."""

    messages: Annotated[list[Any], appended]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agentchat(steps: int) -> Run:
    """AutoGen AgentChat's `AssistantAgent`."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall

    from stagebell.testing import ScriptedModel

    async def run() -> None:
        calls = [[FunctionCall(id=f"c{number}", name="add", arguments=ARGUMENTS)] for number in range(steps - 1)]
        model = ScriptedModel([*calls, END])
        agent = AssistantAgent("a", model, tools=[add], max_tool_iterations=steps, reflect_on_tool_use=False)
        result = await agent.run(task="go")
        assert result.messages[-1].to_text() == END

    return run


def pydantic_ai(steps: int) -> Run:
    """PydanticAI's `Agent` with its function model."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = sum(message.kind == "response" for message in messages)
        if number == steps - 1:
            return ModelResponse(parts=[TextPart(END)])
        return ModelResponse(parts=[ToolCallPart("add", ARGUMENTS, tool_call_id=f"c{number}")])

    agent = Agent(FunctionModel(answer), tools=[add])

    async def run() -> None:
        result = await agent.run("go")
        assert result.output == END

    return run


def openai_agents(steps: int) -> Run:
    """OpenAI's Agents SDK with a model of its interface."""
    os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        """Answers by how often it was asked in this run."""

        def __init__(self) -> None:
            self.number = itertools.count()

        async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
            """One answer."""
            number = next(self.number)
            item: Any
            if number == steps - 1:
                text = ResponseOutputText(annotations=[], text=END, type="output_text")
                item = ResponseOutputMessage(
                    id=f"m{number}", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                item = ResponseFunctionToolCall(
                    arguments=ARGUMENTS, call_id=f"c{number}", name="add", type="function_call"
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
            """Not used here."""
            raise NotImplementedError

    tool, config = function_tool(add), RunConfig(tracing_disabled=True)

    async def run() -> None:
        agent = Agent(name="a", model=Scripted(), tools=[tool])
        result = await Runner.run(agent, "go", max_turns=steps + 1, run_config=config)
        assert result.final_output == END

    return run


def langgraph(steps: int) -> Run:
    """LangGraph: a node for the model, a node for the tool, an in-memory checkpoint after each."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END as STOP
    from langgraph.graph import START, StateGraph

    async def model(state: State) -> dict[str, Any]:
        number = sum(message["role"] == "assistant" for message in state["messages"])
        if number == steps - 1:
            return {"messages": [{"role": "assistant", "content": END}]}
        call = {"id": f"c{number}", "name": "add", "args": {"a": 20, "b": 22}}
        return {"messages": [{"role": "assistant", "call": call}]}

    async def tool(state: State) -> dict[str, Any]:
        call = state["messages"][-1]["call"]
        return {"messages": [{"role": "tool", "id": call["id"], "content": await add(**call["args"])}]}

    def route(state: State) -> str:
        return "tool" if "call" in state["messages"][-1] else STOP

    graph: Any = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route)
    graph.add_edge("tool", "model")
    compiled = graph.compile(checkpointer=InMemorySaver())
    numbers = itertools.count()

    async def run() -> None:
        config = {"configurable": {"thread_id": str(next(numbers))}, "recursion_limit": 2 * steps + 2}
        result = await compiled.ainvoke({"messages": [{"role": "user", "content": "go"}]}, config)
        assert result["messages"][-1]["content"] == END

    return run


PEERS: dict[str, Callable[[int], Run]] = {
    "AutoGen AgentChat": agentchat,
    "PydanticAI": pydantic_ai,
    "OpenAI Agents SDK": openai_agents,
    "LangGraph, checkpoints in memory": langgraph,
}
