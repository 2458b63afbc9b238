"""A task for an agent that takes none comes back at once, with a word, whatever kind of agent that is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import BaseAgent, MessageContext, RoutedAgent, message_handler

from stagebell.agents.delegates import agent_tool, handoff
from stagebell.agents.messages import StartRun
from stagebell.messages.conversation import RunStatus, TerminationReason
from tests.support.loops import host_model, run, says, wants


class Clerk(RoutedAgent):
    """Has a handler for something else."""

    def __init__(self) -> None:
        super().__init__("a clerk")

    @message_handler
    async def on_text(self, message: StartRun, ctx: MessageContext) -> None:
        raise AssertionError("it is told apart by its subclasses")


class Routes(RoutedAgent):
    """Knows no tasks."""

    def __init__(self) -> None:
        super().__init__("a clerk")


class TakesAll(BaseAgent):
    """Takes whatever comes, and answers with nothing that a run could go on with."""

    def __init__(self) -> None:
        super().__init__("a clerk")

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        return None


class Ignores(Routes):
    """Decides itself what is done about messages that it does not know."""

    async def on_unhandled_message(self, message: Any, ctx: MessageContext) -> None:
        return None


class Fails(Clerk):
    """Takes a task, and fails."""


@pytest.mark.parametrize("kind_of_agent", [Routes, TakesAll, Ignores])
@pytest.mark.parametrize("how", [agent_tool, handoff])
async def test_an_agent_that_takes_no_tasks(runtime: Any, start: Any, kind_of_agent: Any, how: Any) -> None:
    delegate = how("clerk", description="Knows all.", name="clerk")
    await host_model(runtime, says(wants("clerk", task="count"), "done"), tools=[delegate])
    await kind_of_agent.register(runtime, "clerk", kind_of_agent)
    await start(runtime)
    result = await asyncio.wait_for(run(runtime), 5)
    assert (result.status, result.reason) == (RunStatus.FAILED, TerminationReason.FATAL_TOOL_ERROR)
    assert "clerk/c" in result.text
    assert "ModelAgent" in result.text


async def test_an_agent_that_fails_to_take_a_task(runtime: Any, start: Any) -> None:
    """The model is told, as of any run below that failed."""
    model = says(wants("clerk", task="count"), "done")
    await host_model(runtime, model, tools=[agent_tool("clerk", description="Knows all.")])
    await Fails.register(runtime, "clerk", Fails)
    await start(runtime)
    result = await asyncio.wait_for(run(runtime), 5)
    assert (result.status, result.output) == (RunStatus.SUCCEEDED, "done")
    assert "AssertionError" in str(model.requests[-1].messages[-1].content)
