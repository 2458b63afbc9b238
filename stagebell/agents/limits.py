"""What bounds a run. Each run has a bound; one that is started by another gets at most what that has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stagebell.messages.conversation import Usage
from stagebell.runtime.engine.checked import of_validation

_BOUNDS: Final = ("max_steps", "timeout", "max_tokens", "max_cost")
_LONGEST: Final = 10 * 366 * 86_400.0  # seconds


class Limits(BaseModel):
    """The bounds of a run; None is no bound.

    Attributes:
        max_steps: answers of models, in all; the one that reaches it must be the final one.
        timeout: seconds from the start of the run; ten years at most.
        max_tokens: tokens of requests to models, in all; the answer that reaches it must be the final one.
        max_cost: the same for what they cost, in the unit of the agent's `cost`.
        max_hops: how many times, one after the other, the task may be handed on to another agent.
        output_retries: how many answers that are not valid the model may correct.
        model_retries: how many times in a row a request that failed is made again.
        repeated_calls: so many rounds of the same calls with the same results end the run.
        max_bytes: of the conversation as JSON, where each turn stores it; with more, no further step is begun. By
            default two thirds of what a state may have there (`max_state_bytes`); a step may come to the rest.

    Raises:
        InvalidSetting: there is no such bound, or it does not take this value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants")

    max_steps: int | None = Field(default=20, ge=1)
    timeout: float | None = Field(default=None, gt=0, le=_LONGEST, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    max_cost: float | None = Field(default=None, gt=0)
    max_hops: int = Field(default=8, ge=0)
    output_retries: int = Field(default=2, ge=0)
    model_retries: int = Field(default=2, ge=0)
    repeated_calls: int | None = Field(default=3, ge=2)
    max_bytes: int | None = Field(default=None, ge=1)

    if not TYPE_CHECKING:  # which else would not know the bounds by their names

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise of_validation("Limits", error, type(self).model_fields) from None

    def check(self) -> Self:
        """These limits. Raises ValueError when nothing in them bounds a run."""
        if all(getattr(self, name) is None for name in _BOUNDS):
            raise ValueError(f"nothing would end a run of this agent: set at least one of {', '.join(_BOUNDS)}")
        return self

    def within(self, outer: Limits | None) -> Limits:
        """These limits, and none of the bounds wider than that of `outer`."""
        if outer is None or outer is self:
            return self
        narrowed: dict[str, Any] = {name: _least(getattr(self, name), getattr(outer, name)) for name in _BOUNDS}
        return self.model_copy(update={**narrowed, "max_hops": min(self.max_hops, outer.max_hops)})

    def share(self, steps: int, usage: Usage, among: int) -> Limits | None:
        """What is left for each of `among` runs below, after so many steps and this usage; None when too little is.

        The time that is left is no part of it: deadlines are handed down as times of day.
        """
        left: dict[str, Any] = {
            "max_steps": None if self.max_steps is None else (self.max_steps - steps) // among,
            "max_tokens": None if self.max_tokens is None else (self.max_tokens - usage.tokens) // among,
            "max_cost": None if self.max_cost is None else (self.max_cost - usage.cost) / among,
        }
        if self.max_hops < 1 or any(value is not None and value <= 0 for value in left.values()):
            return None
        return self.model_copy(update={**left, "max_hops": self.max_hops - 1})


def _least(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
