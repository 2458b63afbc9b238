"""What a model is shown of a long conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from stagebell import LocalRuntime
from stagebell.agents.history import keep_last, summarise, within_tokens
from stagebell.testing import ScriptedModel
from tests.support.loops import host_model, run, says, sent, wants

pytestmark = pytest.mark.runtime


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """In memory, started."""
    async with LocalRuntime() as runtime:
        yield runtime


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_history_is_shortened_by_whole_blocks(runtime: LocalRuntime) -> None:
    turns: list[Any] = []
    for number in range(6):
        turns += [wants("add", a=number, b=1), f"answer {number}"]
    model = await host_model(runtime, says(*turns), tools=[add], history=[keep_last(3)])
    for number in range(6):
        await run(runtime, f"task {number}")
    for request in model.requests:
        calls = [
            call.id for message in request.messages if message.type == "AssistantMessage" for call in _calls(message)
        ]
        answered = [
            result.call_id
            for message in request.messages
            if message.type == "FunctionExecutionResultMessage"
            for result in message.content
        ]
        assert calls == answered
        assert len(request.messages) <= 8
    assert "task 0" in sent(model)
    assert "task 2" not in sent(model)
    assert "task 5" in sent(model)


def _calls(message: Any) -> list[Any]:
    return [] if isinstance(message.content, str) else message.content


async def test_a_history_fits_into_so_many_tokens(runtime: LocalRuntime) -> None:
    model = ScriptedModel(lambda messages, tools: "x" * 400)
    await host_model(runtime, model, history=[within_tokens(model, 150)])
    for _ in range(4):
        await run(runtime, "y" * 80)
    assert [len(request.messages) for request in model.requests] == [1, 3, 3, 3]


async def test_a_history_is_summed_up(runtime: LocalRuntime) -> None:
    writer = says("They met.", "They met and parted.")
    model = ScriptedModel(lambda messages, tools: f"re {messages[-1].content}")
    await host_model(runtime, model, history=[summarise(writer, after=4, keep=2)])
    for number in range(6):
        await run(runtime, f"task {number}")
    assert "They met" in sent(model)
    assert "task 0" not in sent(model)
    assert "task 5" in sent(model)
    assert len(writer.requests) == 2
