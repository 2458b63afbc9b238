"""What a run did, told round by round for people: pure, from the entries of its conversation, with secrets hidden."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from stagebell.messages.conversation import AnyEntry, Asked, Corrected, Decided, Finished, Noted, Returned, Usage
from stagebell.messages.masking import mask, mask_text
from stagebell.messages.tool_calls import Ask, FinalOutput, HandOff, UseTools

_LONGEST: Final = 2_000
_NONE: Final = Usage()


@dataclass(slots=True)
class Round:
    """One answer of the model and what came of it; round 0 is what was before the first."""

    step: int
    entries: list[AnyEntry] = field(default_factory=list[AnyEntry])


def rounds_of(entries: Iterable[AnyEntry], run_id: str) -> list[Round]:
    """The entries of one run, by its steps, in their order."""
    rounds: list[Round] = []
    for entry in entries:
        if entry.run_id != run_id:
            continue
        if not rounds or entry.step != rounds[-1].step:
            rounds.append(Round(entry.step))
        rounds[-1].entries.append(entry)
    return rounds


def runs_in(entries: Iterable[AnyEntry]) -> list[str]:
    """The runs of a conversation, in the order in which they began."""
    return list(dict.fromkeys(entry.run_id for entry in entries))


def tell(entries: Sequence[AnyEntry], run_id: str, *, longest: int = _LONGEST) -> list[str]:
    """The lines that tell a run, secrets hidden.

    Args:
        entries: the conversation of the run.
        run_id: which run.
        longest: characters after which a text is cut off, with the number that is left out.
    """
    rounds = rounds_of(entries, run_id)
    lines: list[str] = []
    for each in rounds:
        usage = sum((_usage(entry) for entry in each.entries), _NONE)
        spent = f"  ({usage.prompt_tokens} + {usage.completion_tokens} tokens)" if usage.tokens else ""
        lines.append(f"round {each.step}{spent}" if each.step else "before the first round")
        for entry in each.entries:
            for name, text in _told(entry):
                lines += _block(_time(entry.at), name, _cut(text, longest))
    return lines


def _usage(entry: AnyEntry) -> Usage:
    return entry.usage if isinstance(entry, Decided | Corrected) else _NONE


def _told(entry: AnyEntry) -> list[tuple[str, str]]:
    match entry:
        case Asked():
            return [(f"{entry.source} asks", mask_text(entry.content))]
        case Decided():
            return _told_decision(entry)
        case Returned(result=result):
            how = f"failed ({result.code})" if result.is_error else "returned"
            how += f" after {result.attempts} attempts" if result.attempts > 1 else ""
            return [(f"{result.tool_name} {how}", f"[{result.call_id}] {mask_text(result.text)}")]
        case Corrected():
            said = [("model says", mask_text(entry.answer))] if entry.answer else []
            return [*said, ("correction", mask_text(entry.error))]
        case Noted():
            return [(entry.what.replace("_", " "), "" if entry.data is None else _json(mask(entry.data)))]
        case Finished():
            return [
                (
                    f"{entry.status} ({entry.reason})",
                    _json(mask(entry.output)) if entry.output is not None else mask_text(entry.text),
                )
            ]


def _told_decision(entry: Decided) -> list[tuple[str, str]]:
    match entry.decision:
        case FinalOutput(output=output):
            return [("model ends with", _json(mask(output)))]
        case UseTools(calls=calls, text=text):
            said = [("model says", mask_text(text))] if text else []
            return said + [(f"model calls {call.name}", f"[{call.id}] {mask_text(call.arguments)}") for call in calls]
        case HandOff(to=to, message=message):
            return [(f"model hands over to {to}", mask_text(message))]
        case Ask(question=question):
            return [("model asks", mask_text(question))]


def _json(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest} characters more)"


def _block(time: str, name: str, text: str) -> list[str]:
    first, *more = text.split("\n") if text else [""]
    return [f"  {time}  {name}{': ' if first or more else ''}{first}", *(f"{'':16}{line}" for line in more)]
