"""The conversation as the model is sent it, and what shortens it.

It is made of blocks: a message, or a message with calls together with all their results. Whatever a processor leaves
out, it leaves out whole blocks, so a call is never parted from its result.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from stagebell.messages.conversation import AnyEntry, Asked, Corrected, Decided, Returned
from stagebell.messages.tool_calls import Ask, FinalOutput, HandOff, ToolCall, ToolResult, UseTools
from stagebell.messages.trusted import trusted

Block: TypeAlias = tuple[LLMMessage, ...]
"""Messages that belong together."""

Processor: TypeAlias = Callable[[Sequence[Block]], Sequence[Block] | Awaitable[Sequence[Block]]]
"""Makes of the blocks of a conversation those that the model is sent."""

MODEL: Final = "assistant"
_SUMMARIES: Final = 1000  # conversations


class History:
    """The blocks of a conversation that only grows, made once for each entry."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._seen: Sequence[AnyEntry] = ()
        self._calls: AssistantMessage | None = None
        self._results: list[ToolResult] = []

    def blocks(self, entries: Sequence[AnyEntry]) -> list[Block]:
        """The blocks of a conversation; of the same one as the time before, unless it has other entries."""
        seen = len(self._seen)
        if seen > len(entries) or (seen and entries[seen - 1] is not self._seen[-1]):
            self._blocks, self._calls, self._results, seen = [], None, [], 0
        for entry in entries[seen:]:
            self._add(entry)
        self._seen = entries
        self._close()
        return self._blocks

    def _add(self, entry: AnyEntry) -> None:
        if isinstance(entry, Returned):
            self._results.append(entry.result)
        elif isinstance(entry, Decided):
            self._close()
            self._add_decision(entry)
        elif isinstance(entry, Asked):
            self._close()
            self._blocks.append((UserMessage(content=entry.content, source=entry.source),))
        elif isinstance(entry, Corrected):
            self._close()
            said: Block = (AssistantMessage(content=entry.answer, source=MODEL),) if entry.answer else ()
            self._blocks.append((*said, UserMessage(content=correction(entry.error), source="validation")))

    def _add_decision(self, entry: Decided) -> None:
        decision = entry.decision
        match decision:
            case UseTools():
                self._calls = _calling(decision.calls, decision.text)
            case HandOff(call=ToolCall() as call) | Ask(call=ToolCall() as call):
                self._calls = _calling((call,))
            case HandOff():
                self._blocks.append((AssistantMessage(content=decision.message or decision.to, source=MODEL),))
            case Ask():
                self._blocks.append((AssistantMessage(content=decision.question, source=MODEL),))
            case FinalOutput():
                result = ToolResult(call_id="", tool_name="", value=decision.output)
                self._blocks.append((AssistantMessage(content=result.text, source=MODEL),))

    def _close(self) -> None:
        """The results of a decision are complete: that is a block."""
        if self._results and self._calls is not None:
            results = [_result(each) for each in self._results]
            self._blocks.append((self._calls, trusted(FunctionExecutionResultMessage, content=results)))
            self._calls = None
        self._results = []


def correction(error: str) -> str:
    """What the model is told of an answer that could not be used."""
    return f"Your answer could not be used: {error}\nAnswer again."


async def shortened(blocks: Sequence[Block], processors: Sequence[Processor]) -> Sequence[Block]:
    """The blocks that are left when each processor has had its turn."""
    for processor in processors:
        made = processor(blocks)
        blocks = await made if inspect.isawaitable(made) else made
    return blocks


def keep_last(blocks: int) -> Processor:
    """A processor that keeps the last so many blocks, and the first one, which is the first task.

    Raises:
        ValueError: it is less than 1.
    """
    if blocks < 1:
        raise ValueError(f"at least one block has to be kept, got {blocks}")

    def trim(given: Sequence[Block]) -> Sequence[Block]:
        return given if len(given) <= blocks + 1 else (given[0], *given[-blocks:])

    return trim


def within_tokens(client: ChatCompletionClient, tokens: int) -> Processor:
    """A processor that leaves out the oldest blocks until the model's own count is at most `tokens`.

    The latest block stays, however long it is.
    """

    def fit(given: Sequence[Block]) -> Sequence[Block]:
        kept, left = list[Block](), tokens
        for block in reversed(given):
            left -= client.count_tokens(block)
            if kept and left < 0:
                break
            kept.append(block)
        return kept[::-1]

    return fit


def summarise(client: ChatCompletionClient, *, after: int, keep: int) -> Processor:
    """A processor that puts a summary in the place of all but the latest blocks.

    A summary is made by a model, kept in memory, and made anew when again so many blocks have come.

    Args:
        client: the model that writes it; its tokens do not count as those of the run.
        after: so many blocks are left as they are.
        keep: so many of the latest blocks stay in any case.

    Raises:
        ValueError: `keep` is not below `after`.
    """
    if not 0 < keep < after:
        raise ValueError(f"keep must be at least 1 and below after, got {keep} and {after}")
    known: OrderedDict[int, tuple[Block, int, str]] = OrderedDict()

    async def shorten(given: Sequence[Block]) -> Sequence[Block]:
        if len(given) <= after:
            return given
        first = given[0]  # blocks are made once: the first one tells conversations apart
        known_of, upto, text = known.get(id(first), (first, 0, ""))
        if known_of is not first or len(given) - upto > after:
            upto, text = (upto, text) if known_of is first else (0, "")
            old = [message for block in given[upto:-keep] for message in block]
            text, upto = await _summary(client, text, old), len(given) - keep
            known[id(first)] = first, upto, text
            if len(known) > _SUMMARIES:
                known.popitem(last=False)
        return ((UserMessage(content=f"What happened before, in short:\n{text}", source="summary"),), *given[upto:])

    return shorten


async def _summary(client: ChatCompletionClient, before: str, messages: Sequence[LLMMessage]) -> str:
    wanted = "Sum up this conversation in a few sentences. Keep names, numbers, decisions and what is still to be done."
    known = [UserMessage(content=f"What happened before: {before}", source="summary")] if before else []
    last = UserMessage(content=wanted, source="summary")
    result = await client.create([SystemMessage(content=wanted), *known, *messages, last])
    return result.content if isinstance(result.content, str) else ""


def _calling(calls: Sequence[ToolCall], text: str = "") -> AssistantMessage:
    content = [FunctionCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls]
    return trusted(AssistantMessage, content=content, thought=text or None, source=MODEL)


def _result(result: ToolResult) -> FunctionExecutionResult:
    return trusted(
        FunctionExecutionResult,
        content=result.text,
        name=result.tool_name,
        call_id=result.call_id,
        is_error=result.is_error,
    )
