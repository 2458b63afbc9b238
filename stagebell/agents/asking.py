"""Ask the model for its next answer, and say what the answer means to the loop.

    instructions + history ──▶ hooks around ──▶ the client ──▶ calls: a decision with a plan
                                                            └▶ text: the output, or why it is none

Whatever the user's functions or the client raise becomes an event of the run; nothing but a cancellation leaves.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Generic, TypeAlias

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage, SystemMessage
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from stagebell.agents.context import Deps, Output, RunContext
from stagebell.agents.delegates import Delegates
from stagebell.agents.events import AnswerRejected, Event, ModelDecided, ModelFailed, OutputAccepted
from stagebell.agents.history import Block, History, Processor, shortened
from stagebell.agents.outputs import Outputs, Rejected
from stagebell.agents.spans import spanned, tracer_of
from stagebell.agents.stand_ins import Exchange, listened, model_for, tell_listeners
from stagebell.agents.state import Pending
from stagebell.agents.streaming import Stream
from stagebell.agents.writable import writable, writable_arguments, writable_value
from stagebell.errors import StagebellError
from stagebell.messages.conversation import Usage
from stagebell.messages.reasons import shorten
from stagebell.messages.tool_calls import ToolCall
from stagebell.tools.executor import Executor
from stagebell.tools.policy import text_of
from stagebell.tools.running import OutOfTime, Stop, run_limited

Instructions: TypeAlias = str | Callable[[RunContext[Deps]], str | Awaitable[str]]
"""What the model is told to be and to do: a text, or a function that makes one for the step."""

Cost: TypeAlias = Callable[[RequestUsage], float]
"""What a request cost, in a unit of your choice."""

_TO_READER: Final = Stream(published=False)
_JSON_WANTED: Final = "Give your final answer as JSON that fits this schema, and nothing beside it:\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is going to be asked.

    Attributes:
        messages: instructions and history.
        tools: what it may call.
        json_output: as in `ChatCompletionClient.create`.
        extra: more arguments for the client's own interface.
    """

    messages: Sequence[LLMMessage]
    tools: Sequence[ToolSchema] = ()
    json_output: bool | type[BaseModel] | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def changed(self, **changes: Any) -> Request:
        """This request with other values."""
        return replace(self, **changes)


Send: TypeAlias = Callable[[Request], Awaitable[CreateResult]]
Hook: TypeAlias = Callable[[Request, RunContext[Any], Send], Awaitable[CreateResult]]
"""Stands around requests: looks at one or changes it, lets `send` answer it, looks at the answer or changes that."""

ToolsForStep: TypeAlias = Callable[[RunContext[Deps]], Collection[str] | None]
"""The names of the tools that the model may use in this step; None for all."""


@dataclass(slots=True)
class Asking(Generic[Deps, Output]):
    """How an agent asks its model; made once for each agent."""

    client: ChatCompletionClient
    instructions: Sequence[Instructions[Deps]]
    outputs: Outputs[Deps, Output]
    executor: Executor[Deps]
    delegates: Delegates
    processors: Sequence[Processor] = ()
    hooks: Sequence[Hook] = ()
    tools_for_step: ToolsForStep[Deps] | None = None
    cost: Cost | None = None
    request_timeout: float | None = None
    stream: Stream | None = None
    history: History = field(default_factory=History)

    async def ask(self, context: RunContext[Deps], used_ids: Collection[str], now: Callable[[], int]) -> Event:
        """The event that the next answer of the model is.

        Args:
            context: the run.
            used_ids: the ids of calls that the run has had.
            now: the time, in milliseconds since the epoch.

        Raises:
            asyncio.CancelledError: the turn was cancelled.
        """
        try:
            if not self.executor.tools.is_ready:
                await self.executor.tools.ready()
            request = await self.request(context)
        except Exception as error:
            return ModelFailed(f"the request could not be made: {_said(error)}", now(), final=True)
        try:
            answer, tracer = self._answer(request, context), tracer_of(context)
            result = await (answer if tracer is None else spanned(answer, context, tracer))
        except Exception as error:
            return ModelFailed(_said(error), now(), final=_is_mistake(error))
        try:
            return await self._meaning(result, request, context, used_ids, now)
        except Exception as error:
            text = f"the answer could not be checked: {_said(error)}"
            return ModelFailed(text, now(), final=True, usage=self._spent(result.usage))

    async def request(self, context: RunContext[Deps]) -> Request:
        """The request of this step, before the hooks: the one place where it is put together."""
        texts = await _texts(self.instructions, context) if self.instructions else []
        tools = self._tools(context)
        json_output = self._json_output(context, with_tools=bool(tools))
        if not self.outputs.is_text and not inspect.isclass(json_output):
            texts.append(_JSON_WANTED + self.outputs.schema())
        system = [SystemMessage(content="\n\n".join(texts))] if texts else []
        blocks: Sequence[Block] = self.history.blocks(context.conversation)
        if self.processors:
            blocks = await shortened(blocks, self.processors)
        return Request([*system, *chain.from_iterable(blocks)], tools, json_output)

    def _tools(self, context: RunContext[Deps]) -> list[ToolSchema]:
        tools = [*self.executor.tools.schemas(), *self.delegates.schemas]
        visible = self.tools_for_step(context) if self.tools_for_step is not None else None
        return tools if visible is None else [each for each in tools if each["name"] in visible]

    def _json_output(self, context: RunContext[Deps], *, with_tools: bool) -> bool | type[BaseModel] | None:
        """What the client is told of the output; with tools beside it, many services take no schema."""
        if self.outputs.is_text:
            return None
        can = model_for(context.agent.type, self.client).model_info
        if self.outputs.model is not None and can.get("structured_output") and not with_tools:
            return self.outputs.model
        return True if can.get("json_output") else None

    def _answer(self, request: Request, context: RunContext[Deps]) -> Awaitable[CreateResult]:
        if not self.hooks:
            return self._send(request, context)
        send: Send = lambda request: self._send(request, context)  # noqa: E731
        for hook in reversed(self.hooks):
            send = _around(hook, context, send)
        return send(request)

    def _send(self, request: Request, context: RunContext[Deps]) -> Awaitable[CreateResult]:
        client = model_for(context.agent.type, self.client)
        sending = self._told if listened() else self._limited
        return sending(client, request, context)

    async def _told(self, client: ChatCompletionClient, request: Request, context: RunContext[Deps]) -> CreateResult:
        asked = str(context.agent), context.run_id, request.messages, request.tools
        try:
            answer = await self._limited(client, request, context)
        except BaseException as error:
            tell_listeners(Exchange(*asked, None, error))
            raise
        tell_listeners(Exchange(*asked, answer))
        return answer

    async def _limited(self, client: ChatCompletionClient, request: Request, context: RunContext[Deps]) -> CreateResult:
        """Let the client answer, but not longer than it may take, nor after the turn was cancelled."""
        token = context.cancellation_token
        given: dict[str, Any] = {
            "tools": request.tools,
            "json_output": request.json_output,
            "extra_create_args": request.extra,
            "cancellation_token": token,
        }
        stream = self.stream or (_TO_READER if context.tokens_to else None)
        if stream is None:
            work = client.create(request.messages, **given)
        else:
            work = stream.answer(client.create_stream(request.messages, **given), context)
        work = work if inspect.iscoroutine(work) else _coroutine(work)
        try:
            limited = run_limited(work, "the model", token=None, stop=Stop(token), seconds=self.request_timeout)
            result: CreateResult = await limited
        except OutOfTime:
            raise TimeoutError(f"no answer within {self.request_timeout:g} seconds") from None
        except CancelledError:
            task = asyncio.current_task()
            if token.is_cancelled() or (task is not None and task.cancelling()):
                raise
            raise ConnectionError("the client gave up the request by itself") from None
        return result

    async def _meaning(
        self,
        result: CreateResult,
        request: Request,
        context: RunContext[Deps],
        used_ids: Collection[str],
        now: Callable[[], int],
    ) -> Event:
        usage = self._usage(result.usage)
        if not isinstance(result.content, str):
            calls = _calls(result.content, context.step, used_ids)
            if calls:
                visible = {each["name"] for each in request.tools}
                text = writable(result.thought or "")
                return ModelDecided(self.delegates.decision(calls, text), self._plan(calls, visible), usage, now())
        answer = writable(result.content) if isinstance(result.content, str) else ""
        checked = await self.outputs.check(answer, context)
        if isinstance(checked, Rejected):
            return AnswerRejected(answer, writable(checked.error), usage, now(), final=checked.final)
        return OutputAccepted(writable_value(checked), usage, now())

    def _plan(self, calls: Sequence[ToolCall], visible: Collection[str]) -> tuple[Pending, ...]:
        """The calls in groups; those to tools that the model was not shown are not made."""
        plan: list[Pending] = []
        for number, group in enumerate(self.executor.groups(calls)):
            for call in group:
                pending = self.delegates.pending(call, number, alone=len(calls) == 1)
                if call.name not in visible and self._known(call.name):
                    pending = Pending(call, number, refused=f"tool {call.name} cannot be used in this step")
                plan.append(pending)
        return tuple(plan)

    def _known(self, name: str) -> bool:
        return self.executor.tools.find(name) is not None or self.delegates.kind(name) != "tool"

    def _spent(self, usage: RequestUsage) -> Usage:
        """What an answer took that came to nothing; without its cost, when that cannot be told."""
        try:
            return self._usage(usage)
        except Exception:
            return Usage(requests=1, prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)

    def _usage(self, usage: RequestUsage) -> Usage:
        return Usage(
            requests=1,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cost=0.0 if self.cost is None else _cost(self.cost, usage),
        )


def _cost(cost: Cost, usage: RequestUsage) -> float:
    found = cost(usage)
    if not math.isfinite(found) or found < 0:
        raise ValueError(f"the cost of a request is 0 or more, and `cost` said {found}")
    return found


async def _coroutine(work: Awaitable[CreateResult]) -> CreateResult:
    return await work


def _around(hook: Hook, context: RunContext[Any], send: Send) -> Send:
    async def wrapped(request: Request) -> CreateResult:
        return await hook(request, context, send)

    return wrapped


async def _texts(instructions: Sequence[Instructions[Any]], context: RunContext[Any]) -> list[str]:
    texts: list[str] = []
    for each in instructions:
        made = each if isinstance(each, str) else each(context)
        texts.append(await made if inspect.isawaitable(made) else made)
    return [text for text in texts if text]


def _calls(calls: Sequence[FunctionCall], step: int, used_ids: Collection[str]) -> list[ToolCall]:
    """The calls of an answer, each with an id that the run has not had: some services count from 0 each time."""
    own, made = set[str](), list[ToolCall]()
    for number, call in enumerate(calls):
        id = writable(call.id) or f"call_{number}"
        if id in used_ids or id in own:
            id = f"{id}.{step + 1}.{number}"
        own.add(id)
        made.append(ToolCall(id=id, name=writable(call.name), arguments=writable_arguments(call.arguments)))
    return made


def _said(error: BaseException) -> str:
    return shorten(text_of(error))


def _is_mistake(error: Exception) -> bool:
    """True for what asking again cannot change: the program is wrong, or a test forbids it."""
    return isinstance(error, StagebellError | TypeError | NotImplementedError | AttributeError | AssertionError)
