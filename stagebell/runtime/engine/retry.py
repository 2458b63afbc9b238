"""When a message whose handler raised is handled again, and after what delay: decided here, done by the transport."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass
from typing import Any, cast

from autogen_core.exceptions import CantHandleException

from stagebell.errors import (
    AlreadyRegistered,
    CallDepthExceeded,
    DeadLettered,
    MessageError,
    NonDeterministicReplay,
    StateMismatch,
    SubscriptionError,
    UnknownAgentType,
)
from stagebell.runtime.engine.checked import GRACE, Kind, check_fields, count, number, with_named_settings

_ALWAYS_FINAL: tuple[type[BaseException], ...] = (
    CancelledError,  # somebody wanted the turn to end
    MessageError,  # what cannot be read, written or stored will not be so the next time
    CantHandleException,
    CallDepthExceeded,
    DeadLettered,
    NonDeterministicReplay,
    UnknownAgentType,
    AlreadyRegistered,
    SubscriptionError,
)


def _are_exceptions(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in cast("tuple[object, ...]", value)
    )


_KINDS = {
    "attempts": count("attempts"),
    "first_delay": GRACE,
    "factor": number("a number", 1),
    "longest_delay": GRACE,
    "jitter": number("a share", 0, 1),
    "final": Kind("a tuple of exception classes", _are_exceptions),
}


@with_named_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, and when, a published message is handled again after its handler raised.

    Attributes:
        attempts: how often it is handled at most, the first time included; then it goes to the dead letters.
        first_delay: seconds before the second attempt.
        factor: by how much each further delay is longer than the one before it.
        longest_delay: the longest delay, in seconds.
        jitter: the share of a delay, from 0 to 1, that chance may take off it, so that messages which failed together
            do not all come back together.
        final: exceptions after which there is no further attempt.

    Raises:
        InvalidSetting: there is no such setting, or it does not take this value.
    """

    attempts: int = 3
    first_delay: float = 0.1
    factor: float = 2.0
    longest_delay: float = 30.0
    jitter: float = 0.5
    final: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, _KINDS)

    def delay_before(self, attempt: int, chance: float) -> float:
        """Seconds to wait before an attempt.

        Args:
            attempt: its number; the first that has a delay is 2.
            chance: a random number from 0 to 1.
        """
        try:
            delay = min(self.longest_delay, self.first_delay * self.factor ** (attempt - 2))
        except OverflowError:
            delay = self.longest_delay
        return delay * (1 - self.jitter * chance)

    def is_final(self, error: BaseException) -> bool:
        """True when there is no further attempt after this error.

        So it is, besides `final`, after a cancellation and after errors of the runtime that cannot get better, such as
        a message or a state that is too large.
        """
        if isinstance(error, StateMismatch):  # of a callee; a newer program can read its state
            return isinstance(error, self.final)
        return isinstance(error, (*_ALWAYS_FINAL, *self.final))
