"""What a tool says of itself, and what follows for a call that may have been made before.

    effects      strategy     a call that may have run already (its worker died, its answer was lost)
    ──────────────────────────────────────────────────────────────────────────────────────────────────
    none         pure         is run again
    idempotent   idempotent   is run again, with the same idempotency key
    (any)        status       is asked for by that key: `status=` says succeeded, failed, processing or absent
    side         once         ends in "outcome unknown"; what can be done about it are `compensate=` and approval
    (not said)   undeclared   ends in "outcome unknown"

A side effect with none of `status=`, `compensate=` and `requires_approval=` is refused when the tool is made.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import JsonValue

from stagebell.tools.context import ToolContext

Effects = Literal["none", "idempotent", "side"]
StatusKind = Literal["succeeded", "failed", "processing", "absent"]

_RATE: Final = re.compile(r"(\d+)/(s|m|h|\d+(?:\.\d+)?s)")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Strategy(StrEnum):
    """What is done about a call that may have been made before."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    STATUS = "status"
    ONCE = "once"
    UNDECLARED = "undeclared"

    @property
    def may_run_again(self) -> bool:
        """True when running a call a second time does no harm."""
        return self in (Strategy.PURE, Strategy.IDEMPOTENT)


@dataclass(frozen=True, slots=True)
class Status:
    """What became of a call, as the service outside knows it by the call's idempotency key.

    Attributes:
        kind: "succeeded" (the call is answered with `value`), "failed" (with the text in `value`), "processing" (wait
            and ask again) or "absent" (it never arrived).
        value: the result, or the reason.
    """

    kind: StatusKind
    value: Any = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(StatusKind):
            raise ValueError(f"the kind of a status must be one of {get_args(StatusKind)}, got {self.kind!r}")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The most calls of one tool in one process.

    Attributes:
        calls: this many,
        seconds: in any span of this length.
        wait: the most seconds that a call waits for its turn; one that would wait longer is refused.
    """

    calls: int
    seconds: float = 1.0
    wait: float = 0.0

    def __post_init__(self) -> None:
        if self.calls < 1 or self.seconds <= 0 or self.wait < 0:
            raise ValueError(f"a rate limit has at least one call in a time above 0, got {self}")

    @classmethod
    def parse(cls, text: str) -> RateLimit:
        """A limit like "2/s", "30/m", "100/h" or "5/0.5s". Raises ValueError when it is none."""
        found = _RATE.fullmatch(text)
        if found is None:
            raise ValueError(f'a rate limit is written like "2/s", "30/m", "100/h" or "5/0.5s", got {text!r}')
        return cls(int(found[1]), _UNITS.get(found[2]) or float(found[2][:-1]))


Arguments: TypeAlias = Mapping[str, Any]
AskStatus: TypeAlias = Callable[[ToolContext[Any]], Awaitable[Status]]
Compensate: TypeAlias = Callable[[Arguments, JsonValue, ToolContext[Any]], Any]
ApprovalRule: TypeAlias = bool | Callable[[Arguments], bool]
Authorise: TypeAlias = Callable[[Arguments, ToolContext[Any]], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Declared:
    """What a tool declares; see `tool` for what each of it means."""

    effects: Effects | None = None
    status: AskStatus | None = None
    compensate: Compensate | None = None
    requires_approval: ApprovalRule = False
    parallel_safe: bool = False
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    timeout: float | None = None
    retries: int = 0
    rate_limit: RateLimit | None = None
    authorise: Authorise | None = None

    @property
    def strategy(self) -> Strategy:
        """What is done about a call that may have been made before."""
        if self.effects == "none":
            return Strategy.PURE
        if self.effects == "idempotent":
            return Strategy.IDEMPOTENT
        if self.status is not None:
            return Strategy.STATUS
        return Strategy.ONCE if self.effects == "side" else Strategy.UNDECLARED

    @property
    def approval(self) -> Literal["never", "always", "by arguments"]:
        """When a person is asked before the tool runs."""
        if callable(self.requires_approval):
            return "by arguments"
        return "always" if self.requires_approval else "never"

    def needs_approval(self, arguments: Arguments) -> bool:
        """Whether a person is asked before a call with these arguments."""
        wanted = self.requires_approval
        return bool(wanted(arguments)) if callable(wanted) else wanted

    def problem(self) -> str | None:
        """Why a tool cannot declare this, or None."""
        if self.effects is not None and self.effects not in get_args(Effects):
            return f"effects must be one of {get_args(Effects)}, got {self.effects!r}"
        if self.strategy is Strategy.ONCE and self.compensate is None and self.requires_approval is False:
            return (
                "it declares side effects and nothing that tells what to do when one of its calls may have happened: "
                'give status=, compensate= or requires_approval=, or effects="idempotent" when it honours the key'
            )
        if self.retries and not (self.strategy.may_run_again or self.strategy is Strategy.STATUS):
            return (
                "retries would repeat its effects: only a pure or idempotent tool, or one with status=, can have them"
            )
        if self.retries < 0 or (self.timeout is not None and not self.timeout > 0):
            return f"retries must be 0 or more and timeout above 0, got {self.retries} and {self.timeout}"
        return None


def names(given: Collection[str], what: str) -> frozenset[str]:
    """The names of what a tool reads or writes.

    Raises:
        ValueError: it is one text, or one of them is no name.
    """
    if isinstance(given, str) or not all(given):
        raise ValueError(f'{what} must be a set of names like {{"stock"}}, got {given!r}')
    return frozenset(given)
