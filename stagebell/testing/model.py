"""A model that says what a test tells it to: no key, no network, no surprise.

    model = ScriptedModel(["Paris.", [FunctionCall(id="1", name="add", arguments='{"a": 1}')], "Done."])
    result = await model.create([UserMessage(content="Capital of France?", source="user")])
    assert result.content == "Paris." and model.requests[0].messages[0].content == "Capital of France?"

Wherever AutoGen takes a `ChatCompletionClient`, it takes this one.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
    validate_model_info,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from stagebell.errors import StagebellError

Answer: TypeAlias = str | Sequence[FunctionCall] | CreateResult
"""What the model says to one request: text, calls of tools, or a whole result."""

Script: TypeAlias = (
    Sequence[Answer] | Callable[[Sequence[LLMMessage], Sequence[Tool | ToolSchema]], Answer | Awaitable[Answer]]
)
"""The answers one after the other, or a function (plain or async) from messages and tools to an answer."""

_CONTEXT_TOKENS = 128_000
_CHARACTERS_PER_TOKEN = 4


class ScriptExhausted(StagebellError):
    """The model was asked more often than its script has answers."""

    def __init__(self, answers: int) -> None:
        super().__init__(
            f"request number {answers + 1} came, but the script has {answers} answer(s): "
            "add an answer to the script, or pass a function that answers any number of requests"
        )
        self.answers = answers


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request as the model received it."""

    messages: tuple[LLMMessage, ...]
    tools: tuple[Tool | ToolSchema, ...]
    tool_choice: Tool | Literal["auto", "required", "none"]
    json_output: bool | type[BaseModel] | None
    extra_create_args: Mapping[str, Any]


class ScriptedModel(ChatCompletionClient):
    """A `ChatCompletionClient` whose answers are written down beforehand.

    Args:
        script: the answers one after the other, or a function (plain or async) that is given the messages and
            the tools of a request and returns its answer.
        model_info: what the model can do; by default everything, of an unknown family.

    Raises:
        ValueError: `model_info` lacks a required field.
    """

    def __init__(self, script: Script, *, model_info: ModelInfo | None = None) -> None:
        self._script = script if callable(script) else tuple(script)
        self._model_info = model_info or _all_capabilities()
        validate_model_info(self._model_info)
        self._answered = 0
        self._last = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self._total = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self.requests: list[ModelRequest] = []

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Answers with the next entry of the script.

        Returns:
            The answer; its usage is an estimate of four characters a token, unless the script gave a
            whole result.

        Raises:
            ScriptExhausted: the script has no more answers.
            asyncio.CancelledError: the token was cancelled; the answer is not used up.
        """
        request = ModelRequest(tuple(messages), tuple(tools), tool_choice, json_output, dict(extra_create_args or {}))
        if cancellation_token is not None and cancellation_token.is_cancelled():
            raise asyncio.CancelledError
        self.requests.append(request)
        answer = self._next(request)
        if inspect.isawaitable(answer):
            answering = asyncio.ensure_future(_answered(answer))
            if cancellation_token is not None:
                cancellation_token.link_future(answering)
            answer, error = await answering
            if error is not None:
                raise error
        return self._counted(self._result(request, answer))

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Answers with the next entry of the script, word by word, then as a whole; otherwise as `create`."""
        result = await self.create(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            json_output=json_output,
            extra_create_args=extra_create_args,
            cancellation_token=cancellation_token,
        )
        for chunk in _chunks(result):
            if cancellation_token is not None and cancellation_token.is_cancelled():
                raise asyncio.CancelledError
            yield chunk
            await asyncio.sleep(0)  # a real stream lets others run between chunks
        yield result

    async def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def actual_usage(self) -> RequestUsage:
        """Returns the tokens of the latest answer."""
        return self._last

    def total_usage(self) -> RequestUsage:
        """Returns the tokens of all answers so far."""
        return self._total

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Returns an estimate of the tokens in messages and tools, four characters a token."""
        return sum(_tokens(_text_of(message)) for message in messages) + sum(
            _tokens(json.dumps(tool.schema if isinstance(tool, Tool) else tool)) for tool in tools
        )

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Returns how many of 128,000 tokens messages and tools leave free, never less than 0."""
        return max(0, _CONTEXT_TOKENS - self.count_tokens(messages, tools=tools))

    @property
    def capabilities(self) -> ModelInfo:
        """The same as `model_info`, under its old name."""
        return self._model_info

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        return self._model_info

    def _counted(self, result: CreateResult) -> CreateResult:
        self._last = result.usage
        self._total = RequestUsage(
            prompt_tokens=self._total.prompt_tokens + result.usage.prompt_tokens,
            completion_tokens=self._total.completion_tokens + result.usage.completion_tokens,
        )
        return result

    def _next(self, request: ModelRequest) -> Answer | Awaitable[Answer]:
        if callable(self._script):
            return self._script(request.messages, request.tools)
        if self._answered == len(self._script):
            raise ScriptExhausted(self._answered)
        self._answered += 1
        return self._script[self._answered - 1]

    def _result(self, request: ModelRequest, answer: Answer) -> CreateResult:
        if isinstance(answer, CreateResult):
            return answer
        content = answer if isinstance(answer, str) else list(answer)
        usage = RequestUsage(
            prompt_tokens=self.count_tokens(request.messages, tools=request.tools),
            completion_tokens=_tokens(content if isinstance(content, str) else _text_of_calls(content)),
        )
        reason: Literal["stop", "function_calls"] = "stop" if isinstance(content, str) else "function_calls"
        return CreateResult(finish_reason=reason, content=content, usage=usage, cached=False)


def _all_capabilities() -> ModelInfo:
    return ModelInfo(
        vision=True,
        function_calling=True,
        json_output=True,
        structured_output=True,
        multiple_system_messages=True,
        family=ModelFamily.UNKNOWN,
    )


async def _answered(answer: Awaitable[Answer]) -> tuple[Any, BaseException | None]:
    """What a script gives, or what it raises and would end the event loop or its task's waiter."""
    try:
        return await answer, None
    except (GeneratorExit, KeyboardInterrupt, SystemExit) as error:
        return None, error


def _chunks(result: CreateResult) -> Iterator[str]:
    """Words with the white space that follows them; calls of tools are not streamed."""
    if not isinstance(result.content, str):
        return
    start = 0
    for end in range(1, len(result.content) + 1):
        at_word = end == len(result.content) or (
            result.content[end - 1].isspace() and not result.content[end].isspace()
        )
        if at_word:
            yield result.content[start:end]
            start = end


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _text_of(message: LLMMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if isinstance(message, FunctionExecutionResultMessage):
        return "".join(result.name + result.content for result in message.content)
    if isinstance(message, AssistantMessage):
        return _text_of_calls([call for call in message.content if isinstance(call, FunctionCall)])
    return "".join(part for part in content if isinstance(part, str))


def _text_of_calls(calls: Sequence[FunctionCall]) -> str:
    return "".join(call.name + call.arguments for call in calls)
