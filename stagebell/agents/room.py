"""What a conversation may have where each turn stores it: found out before a turn that has done its work is refused.

A state is a text, and the runtime says how long one may be. What is long in it is there twice: an output in the
decision and in the end of its run, arguments of calls in the decision and, until they have their results, in the plan.
So the state after an event is not guessed but written, when the event is large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stagebell.agents.events import (
    AnswerRejected,
    CallsHandled,
    Event,
    ModelDecided,
    ModelFailed,
    OutputAccepted,
    Waits,
)
from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult, UseTools
from stagebell.runtime.engine.snapshots import as_text

_SMALL: Final = 20  # an event with less than this part of the limit has room in any case
_KEPT: Final = 20_000  # bytes for what ends a run
_ADVICE: Final = "ask for less at a time, begin another conversation, or let a state be larger (max_state_bytes)"

Written = Callable[[Event], int]
"""How many bytes the state after an event has."""


def most_bytes(limit: int | None, of_agent: int | None) -> int | None:
    """With how many bytes a conversation begins no further step: `Limits.max_bytes`, else two thirds of the limit."""
    if of_agent is not None:
        return of_agent
    return None if limit is None else limit * 2 // 3


def with_room(event: Event, agent: str, limit: int, written: Written, at: int) -> Event:
    """The event; or, when the state after it would be too large, what becomes of it instead.

    Args:
        event: an answer of the model, or what came of calls.
        agent: whose state it is.
        limit: how many bytes a state may have.
        written: finds out how many it would have.
        at: now, in milliseconds since the epoch.
    """
    size = _size_of(event)
    if size < limit // _SMALL or (needed := written(event)) <= limit - _KEPT:
        return event
    if isinstance(event, CallsHandled):
        return _with_less(event, limit, written)
    usage = event.usage if isinstance(event, ModelDecided | OutputAccepted | AnswerRejected) else None
    text = (
        f"the answer has {size:,} bytes: the state of {agent} would have {needed:,} with it, and may have "
        f"{limit - _KEPT:,} ({limit:,} less what ends a run): {_ADVICE}"
    )
    return ModelFailed(text, at, final=True, usage=usage)


def _with_less(event: CallsHandled, limit: int, written: Written) -> CallsHandled:
    """What came of calls, with errors in the place of the largest results, as many as it takes."""
    for large in sorted(event.outcomes, key=_length, reverse=True):
        if not isinstance(large, ToolResult) or written(event) <= limit - _KEPT:
            break
        call = ToolCall(id=large.call_id, name=large.tool_name)
        size = f"its result has {_length(large):,} bytes, for which a state of {limit:,} bytes has no room"
        less = ToolResult.error(call, ErrorCode.BUSINESS, f"the tool ran, and {size}: let it return less")
        event = event._replace(outcomes=tuple(less if each is large else each for each in event.outcomes))
    return event


def _size_of(event: Event) -> int:
    match event:
        case ModelDecided(decision, calls):
            said = decision.text if isinstance(decision, UseTools) else ""
            return bytes_of(said) + sum(bytes_of(each.call.arguments) for each in calls)
        case OutputAccepted(output):
            return bytes_of(output if isinstance(output, str) else as_text(output))
        case AnswerRejected(answer, error):
            return bytes_of(answer) + bytes_of(error)
        case CallsHandled(outcomes):
            return sum(map(_length, outcomes))
        case _:
            return 0


def _length(outcome: ToolResult | Waits) -> int:
    return bytes_of(outcome.text) if isinstance(outcome, ToolResult) else 0


def bytes_of(text: str) -> int:
    """How many bytes a text has."""
    return len(text) if text.isascii() else len(text.encode())
