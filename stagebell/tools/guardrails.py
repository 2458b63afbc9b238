"""Guardrails: functions that look at what passes and allow it, put something else in its place, or refuse it.

    input ──▶ model ──▶ tool_call ──▶ tool ──▶ tool_result ──▶ model ──▶ … ──▶ output

They are pure: the same subject gets the same verdict, and nothing happens outside. A guardrail that raises refuses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast, get_args

from stagebell.tools.containing import called
from stagebell.tools.policy import text_of

Where = Literal["input", "output", "tool_call", "tool_result"]


@dataclass(frozen=True, slots=True)
class Allow:
    """Let it pass."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Let this pass in its place."""

    value: Any


@dataclass(frozen=True, slots=True)
class Refuse:
    """Let nothing pass; the reason is told to the model, or to whoever asked."""

    reason: str
    by: str = ""


Verdict: TypeAlias = Allow | Rewrite | Refuse


@dataclass(frozen=True, slots=True)
class Subject:
    """What passes.

    Attributes:
        where: at which of the four places.
        value: the text of an input, the output, the arguments of a call or its result.
        tool: the name of the tool, at the last two.
    """

    where: Where
    value: Any
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A function that judges, and where it does.

    Args:
        check: takes a `Subject`, returns `Allow()`, `Rewrite(value)` or `Refuse(reason)`.
        at: one of the four places, or several.
        tools: the tools that it is for; by default all.

    Raises:
        ValueError: `at` is no place, or `check` is async.
    """

    check: Callable[[Subject], Verdict]
    at: Where | Collection[Where] = "tool_call"
    tools: Collection[str] | None = None

    def __post_init__(self) -> None:
        wrong = self.places - set(get_args(Where))
        if wrong or not self.places:
            raise ValueError(f"a guardrail stands at one of {get_args(Where)}, not at {self.at!r}")
        if inspect.iscoroutinefunction(self.check):
            raise ValueError(
                f"guardrail {self.name!r} is async: it must be a pure function; what waits is a tool's job"
            )

    @property
    def name(self) -> str:
        """What it is called in events and refusals."""
        return str(getattr(self.check, "__name__", type(self.check).__name__))

    @property
    def places(self) -> frozenset[str]:
        """Where it stands."""
        return frozenset((self.at,) if isinstance(self.at, str) else self.at)

    def concerns(self, subject: Subject) -> bool:
        """Whether it judges this."""
        return subject.where in self.places and (self.tools is None or not subject.tool or subject.tool in self.tools)


def judge(guardrails: Iterable[Guardrail], subject: Subject) -> Verdict:
    """What all guardrails say together: the first refusal, else the last rewriting, else `Allow()`."""
    verdict: Verdict = Allow()
    for guardrail in guardrails:
        if not guardrail.concerns(subject):
            continue
        said = _asked(guardrail, subject)
        if isinstance(said, Refuse):
            return replace(said, by=said.by or guardrail.name)
        if isinstance(said, Rewrite):
            verdict, subject = said, replace(subject, value=said.value)
    return verdict


def _asked(guardrail: Guardrail, subject: Subject) -> Verdict:
    try:
        said = cast("object", called(guardrail.check, subject))
    except Exception as error:
        return Refuse(f"guardrail {guardrail.name} failed with {text_of(error)}", guardrail.name)
    if isinstance(said, Allow | Rewrite | Refuse):
        return said
    return Refuse(f"guardrail {guardrail.name} returned a {type(said).__name__}, which is no verdict", guardrail.name)
