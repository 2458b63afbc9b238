"""The scripted model: what it answers, what it records, how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, LLMMessage, ModelInfo, RequestUsage, SystemMessage, UserMessage
from autogen_core.tools import FunctionTool, Tool, ToolSchema

from stagebell.errors import StagebellError
from stagebell.testing import Answer, ScriptedModel, ScriptExhausted

pytestmark = pytest.mark.unit

QUESTION = UserMessage(content="What is two and two?", source="user")
CALL = FunctionCall(id="1", name="add", arguments='{"a": 2, "b": 2}')


def add(a: int, b: int) -> int:
    return a + b


ADD = FunctionTool(add, description="Adds two numbers.")


async def test_answers_come_in_the_order_of_the_script() -> None:
    whole = CreateResult(
        finish_reason="length",
        content="cut o",
        usage=RequestUsage(prompt_tokens=7, completion_tokens=2),
        cached=True,
        thought="hm",
    )
    model = ScriptedModel([[CALL], "Four.", whole])

    calls, text, given = [await model.create([QUESTION]) for _ in range(3)]

    assert (calls.content, calls.finish_reason) == ([CALL], "function_calls")
    assert (text.content, text.finish_reason, text.cached) == ("Four.", "stop", False)
    assert given == whole


async def test_requests_are_recorded_as_they_came() -> None:
    model = ScriptedModel(["Four."])
    messages: list[LLMMessage] = [SystemMessage(content="Be brief."), QUESTION]

    await model.create(messages, tools=[ADD], tool_choice="required", json_output=True)
    messages.clear()

    (request,) = model.requests
    assert request.messages == (SystemMessage(content="Be brief."), QUESTION)
    assert request.tools == (ADD,)
    assert (request.tool_choice, request.json_output) == ("required", True)


async def test_a_script_that_has_ended_is_a_clear_error() -> None:
    model = ScriptedModel(["only one"])
    await model.create([QUESTION])

    with pytest.raises(ScriptExhausted, match=r"request number 2 came, but the script has 1 answer") as caught:
        await model.create([QUESTION])

    assert isinstance(caught.value, StagebellError)
    assert caught.value.answers == 1
    assert len(model.requests) == 2


async def test_a_function_may_decide_from_messages_and_tools() -> None:
    def answer(messages: Sequence[LLMMessage], tools: Sequence[Tool | ToolSchema]) -> Answer:
        return f"{len(messages)} message(s), {len(tools)} tool(s)"

    model = ScriptedModel(answer)

    assert (await model.create([QUESTION])).content == "1 message(s), 0 tool(s)"
    assert (await model.create([QUESTION, QUESTION], tools=[ADD])).content == "2 message(s), 1 tool(s)"


async def test_usage_grows_with_the_text_and_is_summed() -> None:
    model = ScriptedModel(["abcdefgh", [CALL]])

    first = await model.create([UserMessage(content="x" * 40, source="user")])
    second = await model.create([UserMessage(content="x" * 40, source="user")], tools=[ADD])

    assert first.usage == RequestUsage(prompt_tokens=10, completion_tokens=2)
    assert second.usage.prompt_tokens > 10  # tools count
    assert model.actual_usage() == second.usage
    assert model.total_usage() == RequestUsage(
        prompt_tokens=first.usage.prompt_tokens + second.usage.prompt_tokens,
        completion_tokens=first.usage.completion_tokens + second.usage.completion_tokens,
    )
    assert model.remaining_tokens([]) - model.remaining_tokens([QUESTION]) == model.count_tokens([QUESTION])


async def test_a_stream_gives_chunks_and_then_the_result() -> None:
    model = ScriptedModel([" Two and two\n are four. ", [CALL], ""])

    streams = [[chunk async for chunk in model.create_stream([QUESTION])] for _ in range(3)]

    text, calls, nothing = streams
    assert len(text) > 3
    assert "".join(chunk for chunk in text[:-1] if isinstance(chunk, str)) == " Two and two\n are four. "
    assert isinstance(text[-1], CreateResult)
    assert text[-1].content == " Two and two\n are four. "
    assert [type(chunk) for chunk in calls] == [CreateResult]
    assert [type(chunk) for chunk in nothing] == [CreateResult]


async def test_a_cancelled_token_uses_up_no_answer() -> None:
    model = ScriptedModel(["Four."])
    token = CancellationToken()
    token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await model.create([QUESTION], cancellation_token=token)

    assert (await model.create([QUESTION])).content == "Four."


async def test_a_token_ends_an_answer_that_is_being_made() -> None:
    started = asyncio.Event()

    async def never(messages: Sequence[LLMMessage], tools: Sequence[Tool | ToolSchema]) -> Answer:
        started.set()
        return await asyncio.Future[Answer]()

    token = CancellationToken()
    answering = asyncio.ensure_future(ScriptedModel(never).create([QUESTION], cancellation_token=token))
    await asyncio.wait_for(started.wait(), 5)
    token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(answering, 5)


async def test_a_token_ends_a_stream_between_chunks() -> None:
    token = CancellationToken()
    seen: list[str | CreateResult] = []

    with pytest.raises(asyncio.CancelledError):
        async for chunk in ScriptedModel(["one two three"]).create_stream([QUESTION], cancellation_token=token):
            seen.append(chunk)
            token.cancel()

    assert seen == ["one "]


def test_what_the_model_can_do_is_stated() -> None:
    assert ScriptedModel([]).model_info["function_calling"]
    plain = ModelInfo(vision=False, function_calling=False, json_output=False, structured_output=False, family="plain")
    assert ScriptedModel([], model_info=plain).model_info == plain
    assert ScriptedModel([], model_info=plain).capabilities == plain
