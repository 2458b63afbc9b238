"""An exception that cannot be described is still told to the caller: describing never raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stagebell.messages.failure import describe, restore
from stagebell.runtime.redis.wire import traceback_text

pytestmark = pytest.mark.unit


class RaisingArgs(Exception):
    @property
    def args(self) -> Any:
        raise RuntimeError("no args")


class RaisingNotes(Exception):
    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no notes")


class RaisingCause(Exception):
    @property
    def __cause__(self) -> Any:
        raise RuntimeError("no cause")


class EndsProcess(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


class ArgsEndProcess(Exception):
    @property
    def args(self) -> Any:
        raise KeyboardInterrupt


def with_attributes(**attributes: Any) -> Exception:
    error = ValueError("told")
    error.__dict__.update(attributes)
    return error


def with_bytes_as_line() -> Exception:
    info: Any = ("f", 1, 2, b"bytes")
    return SyntaxError("a", info)


def with_number_as_name() -> Exception:
    error = ValueError("told")
    names: dict[Any, Any] = error.__dict__
    names[7] = "seven"
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "syntax-error-with-bytes": with_bytes_as_line,
    "args-raise": RaisingArgs,
    "args-end-the-process": ArgsEndProcess,
    "notes-raise": RaisingNotes,
    "cause-raises": RaisingCause,
    "str-ends-the-process": EndsProcess,
    "attribute-with-a-surrogate-name": lambda: with_attributes(**{"\udc80": 1}),
    "attribute-named-by-a-number": with_number_as_name,
    "surrogate-text": lambda: ValueError("\udc80"),
}


@pytest.mark.parametrize("case", ODD)
def test_any_exception_can_be_described_and_restored(case: str) -> None:
    error = ODD[case]()
    restored = restore(describe(error, traceback_text(error)))
    assert isinstance(restored, Exception)


@pytest.mark.parametrize("case", ODD)
def test_the_traceback_text_never_raises_and_can_be_written(case: str) -> None:
    assert traceback_text(ODD[case]()).encode()


def test_a_traceback_that_cannot_be_shown_says_so() -> None:
    assert traceback_text(with_bytes_as_line()).startswith(
        ("Traceback", "SyntaxError", "  File", "the traceback cannot be shown: ")
    )
    assert traceback_text(RaisingCause()).startswith("the traceback cannot be shown: formatting a ")


def test_attributes_that_cannot_travel_do_not_take_the_others_along() -> None:
    restored = restore(describe(with_attributes(**{"\udc80": 1, "code": 7})))
    assert isinstance(restored, ValueError)
    assert restored.code == 7
    assert str(restored) == "told"
