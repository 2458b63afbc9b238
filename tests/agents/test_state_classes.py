"""What a state may hold: plain data. Connections, caches, tokens of cancellation and the like have no place in it."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel, JsonValue

from stagebell.agents.state import LoopState
from stagebell.messages.tool_calls import ErrorCode

pytestmark = pytest.mark.unit

PLAIN = (str, int, float, bool, NoneType)
CONTAINERS = (tuple, list, dict)


def strangers(annotation: Any, where: str, seen: set[type]) -> list[str]:
    """The places in a type that something else than plain data could stand in."""
    if annotation is JsonValue or annotation is Ellipsis or annotation in PLAIN:
        return []
    origin = get_origin(annotation)
    if origin is Literal:
        return []
    if origin in (Union, UnionType, *CONTAINERS):
        return [found for each in get_args(annotation) for found in strangers(each, where, seen)]
    if origin is not None and hasattr(annotation, "__metadata__"):
        return strangers(origin, where, seen)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return []
    if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or issubclass(annotation, BaseModel)):
        return of_fields(annotation, seen)
    return [f"{where}: {annotation}"]


def of_fields(cls: type, seen: set[type]) -> list[str]:
    """The same of the fields of a class."""
    if cls in seen:
        return []
    seen.add(cls)
    fields = cls.model_fields if issubclass(cls, BaseModel) else [each.name for each in dataclasses.fields(cls)]
    hints = get_type_hints(cls)
    return [found for name in fields for found in strangers(hints[name], f"{cls.__name__}.{name}", seen)]


def test_a_state_consists_of_plain_data() -> None:
    seen: set[type] = set()
    assert of_fields(LoopState, seen) == ["RunResult.output: ~Output"]  # written as JSON before it becomes one
    assert {cls.__name__ for cls in seen} >= {"Control", "Run", "Job", "Pending", "Limits", "Returned", "RunResult"}


@dataclasses.dataclass
class Inner:
    """Holds what no JSON can."""

    place: Path | None = None


@dataclasses.dataclass
class State:
    """As one must not be."""

    anything: Any
    inner: tuple[Inner, ...] = ()
    steps: int = 0


def test_the_lint_finds_what_does_not_belong() -> None:
    assert [each.split(":")[0] for each in of_fields(State, set())] == ["State.anything", "Inner.place"]


def test_codes_of_errors_are_the_same_for_ever() -> None:
    """They are counted and compared by others, and stand in stored conversations."""
    assert [str(code) for code in ErrorCode] == [
        "unknown_tool",
        "invalid_arguments",
        "guardrail",
        "denied",
        "rate_limited",
        "business",
        "transient",
        "timeout",
        "outcome_unknown",
        "fatal",
        "cancelled",
    ]
