"""Say what a run must have done, not only what it said in the end: the right answer by a wrong way is a fault.

    assert_trajectory(entries, [called("add", a=20, b=22), returned("add", 42), finished(42)])

The entries are those of `stagebell.messages.conversation`; what the task was and what was only noted is passed over,
and everything else has to be there, in this order, with nothing in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from pydantic import JsonValue

from stagebell.messages.conversation import Corrected, Decided, Entry, Finished, Returned, TerminationReason
from stagebell.messages.tool_calls import Ask, ErrorCode, HandOff, UseTools

ANY: Final[Any] = object()
"""In the place of a value: whatever it is."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a run did: what it was, of which tool or agent, and what more is known of it."""

    kind: str
    name: str = ""
    known: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        inside = ", ".join([self.name] * bool(self.name) + [f"{name}={_spell(it)}" for name, it in self.known.items()])
        return f"{self.kind}({inside})"

    def fits(self, other: Step) -> bool:
        """True when `other`, which happened, is what this one asks for."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind == "called" and self.known is not _UNASKED and self.known.keys() != other.known.keys():
            return False
        return all(name in other.known and _is(name, wanted, other.known[name]) for name, wanted in self.known.items())


_UNASKED: Final[dict[str, Any]] = {}
Expected: TypeAlias = Sequence[Step]


def called(tool: str, /, *, with_any: bool = False, **arguments: Any) -> Step:
    """The model asked for this tool with exactly these arguments; `with_any`: with whatever arguments."""
    return Step("called", tool, _UNASKED if with_any else arguments)


def returned(tool: str, value: Any = ANY, /) -> Step:
    """The tool returned this value."""
    return Step("returned", tool, {} if value is ANY else {"value": value})


def failed(tool: str, code: ErrorCode, /, *, containing: str = "") -> Step:
    """The call of the tool ended in an error of this code, whose text contains this."""
    return Step("failed", tool, {"code": str(code), **({"containing": containing} if containing else {})})


def corrected(*, containing: str = "") -> Step:
    """An answer of the model could not be used, and it was told so."""
    return Step("corrected", "", {"containing": containing} if containing else {})


def handed_off(to: str, /) -> Step:
    """The task was handed to another agent."""
    return Step("handed off", to)


def asked(*, containing: str = "") -> Step:
    """A person was asked."""
    return Step("asked", "", {"containing": containing} if containing else {})


def finished(output: Any = ANY, /, *, reason: TerminationReason = TerminationReason.FINAL_OUTPUT) -> Step:
    """The run ended for this reason, with this output."""
    return Step("finished", "", {"reason": str(reason), **({} if output is ANY else {"output": output})})


def assert_trajectory(entries: Iterable[Entry], expected: Expected) -> None:
    """Assert that a run went this way.

    Args:
        entries: the conversation of the run, or a part of it.
        expected: made with `called`, `returned`, `failed`, `corrected`, `handed_off`, `asked` and `finished`.

    Raises:
        AssertionError: it went another way; the text shows both, and where they part.
    """
    steps = [step for entry in entries for step in steps_of(entry)]
    pairs = zip(expected, steps, strict=False)
    shared = min(len(steps), len(expected))
    place = next((place for place, (wanted, got) in enumerate(pairs) if not wanted.fits(got)), shared)
    if place == len(steps) == len(expected):
        return
    shown = [f"  {number + 1}. {step}" for number, step in enumerate(steps)] or ["  nothing"]
    must = str(expected[place]) if place < len(expected) else "nothing more"
    found = str(steps[place]) if place < len(steps) else "nothing more"
    raise AssertionError("\n".join([f"step {place + 1} must be {must}", f"and is {found}", "the run did:", *shown]))


def steps_of(entry: Entry) -> list[Step]:
    """What an entry says was done; none for what was only asked or noted."""
    match entry:
        case Decided(decision=UseTools(calls=calls)):
            return [Step("called", call.name, _read(call.arguments)) for call in calls]
        case Decided(decision=HandOff(to=to)):
            return [Step("handed off", to)]
        case Decided(decision=Ask(question=question)):
            return [Step("asked", "", {"containing": question})]
        case Returned(result=result) if result.is_error:
            return [Step("failed", result.tool_name, {"code": str(result.code), "containing": result.text})]
        case Returned(result=result):
            return [Step("returned", result.tool_name, {"value": result.value})]
        case Corrected(error=error):
            return [Step("corrected", "", {"containing": error})]
        case Finished(reason=reason, output=output):
            return [Step("finished", "", {"reason": str(reason), "output": output})]
        case _:
            return []


def _read(arguments: str) -> dict[str, Any]:
    try:
        found: object = json.loads(arguments)
    except ValueError:
        found = None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {"arguments": arguments}


def _is(name: str, wanted: Any, got: Any) -> bool:
    if wanted is ANY:
        return True
    if name == "containing":
        return wanted in got
    return bool(wanted == got) and isinstance(wanted, bool) == isinstance(got, bool)


def _spell(value: JsonValue) -> str:
    text = "anything" if value is ANY else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"
