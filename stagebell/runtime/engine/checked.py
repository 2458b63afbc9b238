"""Settings looked at where they are given, so that a mistake shows there and not in the middle of the work; pure.

What an author mistypes is found with the names that there are, and what a value is refused for with what it takes.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from pydantic import ValidationError

from stagebell.errors import InvalidSetting

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting takes: in words that complete "it must be …", and as a test."""

    takes: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real) and not math.isnan(value)


def seconds(*, least: float = 0.0, endless: bool = False) -> Kind:
    """A length of time above 0, or from `least` on; with `endless` it may be infinite."""

    def fits(value: Any) -> bool:
        return _is_number(value) and (value >= least if least else value > 0) and (endless or value < math.inf)

    return Kind(f"a number of seconds, {f'from {least:g} on' if least else 'more than 0'}", fits)


def number(what: str, least: float, most: float = math.inf) -> Kind:
    """A finite number from `least` to `most`."""
    upper = "on" if most == math.inf else f"to {most:g}"
    return Kind(
        f"{what}, from {least:g} {upper}",
        lambda value: _is_number(value) and least <= value <= most and value < math.inf,
    )


GRACE = Kind("a number of seconds, from 0 on", lambda value: _is_number(value) and 0 <= value < math.inf)


def count(of: str, least: int = 1) -> Kind:
    """A whole number from `least` on."""

    def fits(value: Any) -> bool:
        return type(value) is not bool and isinstance(value, Integral) and int(value) >= least

    return Kind(f"a whole number of {of}, from {least} on", fits)


FLAG = Kind("True or False", lambda value: isinstance(value, bool))


def one_of(*choices: str) -> Kind:
    """One of these words."""
    return Kind(" or ".join(f'"{each}"' for each in choices), lambda value: value in choices)


HOST_SETTINGS = {
    "cancel_grace": GRACE,
    "max_call_depth": count("calls"),
    "warn_after": seconds(endless=True),
    "clock": Kind("a clock, or None", lambda value: value is None or hasattr(value, "now_ms")),
    "intervention_handlers": Kind(
        "a list of handlers, or None", lambda value: value is None or isinstance(value, Sequence)
    ),
}
"""Of both runtimes."""


def check_settings(values: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """See that each setting has a value that it takes.

    Raises:
        InvalidSetting: the first that does not.
    """
    for name, kind in kinds.items():
        value = values[name]
        try:
            fits = kind.fits(value)
        except (TypeError, ValueError, ArithmeticError):
            fits = False
        if not fits:
            raise InvalidSetting(f"{name} must be {kind.takes}, not {value!r:.100}{_type_of(value)}", name)


def check_fields(of: object, kinds: Mapping[str, Kind]) -> None:
    """The same for the attributes of an object."""
    check_settings({name: getattr(of, name) for name in kinds}, kinds)


def _type_of(value: object) -> str:
    if value is None or isinstance(value, int | float):
        return ""
    return f" (a {type(value).__name__})"


def unknown_setting(of: str, name: str, known: Collection[str]) -> InvalidSetting:
    """The error for a setting that does not exist."""
    close = difflib.get_close_matches(name, known, n=1)
    meant = f": did you mean {close[0]}?" if close else "."
    return InvalidSetting(f"{of} has no setting {name!r}{meant} It has {', '.join(sorted(known))}", name)


def named_settings(of: str, options: Collection[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a function with settings: one that it does not have ends in `InvalidSetting`, which names them all.

    Args:
        of: what has the settings.
        options: those that the function takes as `**options`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        named = {each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
        known = frozenset(named - {"self"} | set(options))

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if not kwargs.keys() <= known:
                raise unknown_setting(of, next(name for name in kwargs if name not in known), known)
            return function(*args, **kwargs)

        return checked

    return decorate


def with_named_settings(cls: type[T]) -> type[T]:
    """The same for a class, whose constructor takes its settings."""
    name = "__init__"
    setattr(cls, name, named_settings(cls.__name__)(getattr(cls, name)))
    return cls


def of_validation(of: str, error: ValidationError, known: Collection[str]) -> InvalidSetting:
    """What pydantic found wrong with a setting, in the words of this package."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return unknown_setting(of, name, known)
    value = first["input"]
    said = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return InvalidSetting(f"{name} of {of}: it {said}, not {value!r:.100}{_type_of(value)}", name)
