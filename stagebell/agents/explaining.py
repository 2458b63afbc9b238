"""Why a run went as it did: pure, from the state of its conversation, in the order in which one looks for a fault.

model output ──▶ schema ──▶ state ──▶ side effects ──▶ end

The first section in which something is wrong says where to look: at the model and its instructions, at schemas and
descriptions, at what the run waits for, at a tool, or at the bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from stagebell.agents.inquiries import status_of
from stagebell.agents.state import LoopState, Run
from stagebell.messages.conversation import AnyEntry, Corrected, Decided, Finished, Noted, Returned, RunStatus
from stagebell.messages.masking import mask, mask_text
from stagebell.messages.reasons import shorten
from stagebell.messages.tool_calls import Ask, ErrorCode, FinalOutput, HandOff, ToolCall, ToolResult, UseTools


class Verdict(StrEnum):
    """What became of a call."""

    WRONG_TOOL = "wrong_tool"
    WRONG_ARGUMENTS = "wrong_arguments"
    NEVER_RAN = "never_ran"
    RAN_WITH_WRONG_ARGUMENTS = "ran_with_wrong_arguments"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    NOT_RECORDED = "not_recorded"
    SUCCEEDED = "succeeded"
    REPEATED = "repeated"
    OPEN = "open"


_IN_WORDS: Final[dict[Verdict, str]] = {
    Verdict.WRONG_TOOL: "there is no such tool, nothing ran",
    Verdict.WRONG_ARGUMENTS: "wrong arguments, it never ran",
    Verdict.NEVER_RAN: "it never ran",
    Verdict.RAN_WITH_WRONG_ARGUMENTS: "it ran, and found its arguments wrong",
    Verdict.FAILED: "it ran, and failed",
    Verdict.TIMED_OUT: "it ran out of time",
    Verdict.NOT_RECORDED: "it may have run, and its result was not recorded",
    Verdict.SUCCEEDED: "it succeeded",
    Verdict.REPEATED: "it succeeded, and was tried again for that",
    Verdict.OPEN: "it has no result yet",
}


@dataclass(frozen=True, slots=True)
class CallTold:
    """One call.

    Attributes:
        step: the answer of the model that asked for it.
        call_id: names it.
        tool: as the model spelt it.
        verdict: what became of it.
        attempts: how often it was run, as far as that is known.
        code: of its error.
        text: of its error.
        undone: its tool's `compensate` has taken it back.
    """

    step: int
    call_id: str
    tool: str
    verdict: Verdict
    attempts: int = 0
    code: str = ""
    text: str = ""
    undone: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """A run, seen from its end. Texts are as they were shown to the model, with credentials hidden.

    Attributes:
        run_id: names it.
        status: how it stands.
        answers: what the model gave, by step.
        misfits: what of that did not fit a schema, by step.
        state: how the run stands, in words.
        calls: what became of each call.
        end: why it ended.
    """

    run_id: str
    status: RunStatus
    answers: tuple[tuple[int, str], ...]
    misfits: tuple[tuple[int, str], ...]
    state: str
    calls: tuple[CallTold, ...]
    end: str

    def __str__(self) -> str:
        """In words, a section after the other."""
        return "\n".join(lines(self))


def explain(state: LoopState, run_id: str) -> Explanation:
    """Why a run went as it did.

    Args:
        state: of its conversation, as `RunHandle.state` gives it.
        run_id: which run.

    Raises:
        UnknownRun: the conversation knows of no such run.
    """
    status = status_of(state, run_id)
    entries = [entry for entry in state.conversation if entry.run_id == run_id]
    run = state.control.run
    run = run if run is not None and run.run_id == run_id else None
    calls = tuple(_calls(entries))
    return Explanation(
        run_id,
        status,
        tuple((entry.step, text) for entry in entries if (text := _answer(entry))),
        tuple(_misfits(entries, calls)),
        _standing(entries, run, calls),
        calls,
        _end(entries),
    )


def lines(told: Explanation) -> list[str]:
    """The same for people."""
    return [
        f"run {told.run_id}: {told.status}",
        "model output",
        *(_by_step(told.answers) or ["  nothing yet"]),
        "schema",
        *(_by_step(told.misfits) or ["  everything fitted"]),
        "state",
        f"  {told.state}",
        "side effects",
        *(_by_step((call.step, _call_in_words(call)) for call in told.calls) or ["  no tool was called"]),
        "end",
        f"  {told.end}",
    ]


def _by_step(texts: Iterable[tuple[int, str]]) -> list[str]:
    return [f"  step {step}: {text}" for step, text in texts]


def _call_in_words(call: CallTold) -> str:
    times = f" ({call.attempts} attempts)" if call.attempts > 1 else ""
    code = f" ({call.code})" if call.code else ""
    undone = "; it was taken back" if call.undone else ""
    text = f": {call.text}" if call.text else ""
    return f"{call.tool} [{call.call_id}]: {_IN_WORDS[call.verdict]}{times}{code}{undone}{text}"


def _answer(entry: AnyEntry) -> str:
    match entry:
        case Corrected():
            return "an answer that did not fit"
        case Decided(decision=UseTools(calls=calls)):
            return f"calls {', '.join(call.name for call in calls)}"
        case Decided(decision=FinalOutput(output=output)):
            return f"final output: {_json(output)}"
        case Decided(decision=HandOff(to=to)):
            return f"hands over to {to}"
        case Decided(decision=Ask(question=question)):
            return f"asks a person: {shorten(mask_text(question))}"
        case Noted(what="model_failed"):
            return f"no answer: {_said(entry)}"
        case _:
            return ""


def _misfits(entries: Sequence[AnyEntry], calls: Sequence[CallTold]) -> list[tuple[int, str]]:
    found = [
        (entry.step, f"output: {shorten(mask_text(entry.error))}") for entry in entries if isinstance(entry, Corrected)
    ]
    wrong = (Verdict.WRONG_TOOL, Verdict.WRONG_ARGUMENTS, Verdict.RAN_WITH_WRONG_ARGUMENTS)
    found += [
        (call.step, f"{call.tool} [{call.call_id}]: {_IN_WORDS[call.verdict]}: {call.text}")
        for call in calls
        if call.verdict in wrong
    ]
    return sorted(found, key=lambda each: each[0])


def _calls(entries: Sequence[AnyEntry]) -> Iterator[CallTold]:
    results = {entry.result.call_id: entry.result for entry in entries if isinstance(entry, Returned)}
    undone = {_call_id(entry) for entry in entries if isinstance(entry, Noted) and entry.what == "undone"}
    for entry in entries:
        for call in _asked_for(entry):
            result = results.get(call.id)
            if result is None:
                yield CallTold(entry.step, call.id, call.name, Verdict.OPEN)
                continue
            text = shorten(mask_text(result.text)) if result.is_error else ""
            verdict, code = _verdict(result), str(result.code or "")
            yield CallTold(
                entry.step, call.id, call.name, verdict, result.attempts, code, text, undone=call.id in undone
            )


def _asked_for(entry: AnyEntry) -> tuple[ToolCall, ...]:
    match entry:
        case Decided(decision=UseTools(calls=calls)):
            return calls
        case Decided(decision=HandOff(call=call) | Ask(call=call)) if call is not None:
            return (call,)
        case _:
            return ()


def _verdict(result: ToolResult) -> Verdict:
    ran = result.attempts > 0
    match result.code:
        case None:
            return Verdict.REPEATED if result.attempts > 1 else Verdict.SUCCEEDED
        case ErrorCode.UNKNOWN_TOOL:
            return Verdict.WRONG_TOOL
        case ErrorCode.INVALID_ARGUMENTS:
            return Verdict.RAN_WITH_WRONG_ARGUMENTS if ran else Verdict.WRONG_ARGUMENTS
        case ErrorCode.OUTCOME_UNKNOWN:
            return Verdict.NOT_RECORDED
        case ErrorCode.TIMEOUT if ran:
            return Verdict.TIMED_OUT
        case _:
            return Verdict.FAILED if ran else Verdict.NEVER_RAN


def _standing(entries: Sequence[AnyEntry], run: Run | None, calls: Sequence[CallTold]) -> str:
    rejected = sum(isinstance(entry, Corrected) for entry in entries)
    said = [f"step {max((entry.step for entry in entries if not isinstance(entry, Finished)), default=0)}"]
    if rejected:
        said.append(f"{rejected} answer{'s' * (rejected > 1)} that did not fit")
    pending = [f"{call.tool} [{call.call_id}]" for call in calls if call.verdict is Verdict.OPEN]
    said.append(f"pending: {', '.join(pending)}" if pending else "nothing pending")
    if run is not None:
        names = {call.call_id: call.tool for call in calls}
        said += [f"waits for {each.kind} of {names.get(each.call_id)} [{each.call_id}]" for each in run.waiting_for]
        if run.retries:
            said.append(f"the model gave no answer {run.retries} times in a row")
        if run.status is RunStatus.PAUSED:
            said.append("paused")
    return ", ".join(said)


def _end(entries: Sequence[AnyEntry]) -> str:
    for entry in reversed(entries):
        if isinstance(entry, Finished):
            came_to = _json(entry.output) if entry.output is not None else mask_text(entry.text)
            return f"{entry.status} ({entry.reason}): {came_to}"
    return "it goes on" if entries else "it has not begun: it waits in line"


def _call_id(note: Noted) -> str:
    return str(cast("dict[str, str]", note.data).get("call_id")) if isinstance(note.data, dict) else ""


def _said(note: Noted) -> str:
    return shorten(_json(note.data))


def _json(value: object) -> str:
    masked = mask(cast("str", value))
    return shorten(masked if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False))
