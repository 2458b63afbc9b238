"""What is measured, and what must be reached: the gate (checked) and the goals (printed)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CALL, CALL_IN_FLIGHT, MEMORY = "call", "call-in-flight", "memory"
PUBLISH = {1: "publish-1", 10: "publish-10", 100: "publish-100"}
TYPES = (1, 10)

Unit = Literal["µs", "B", "/s"]


def delivered(types: int) -> str:
    return f"delivered-{types}"


def calls_per_second(types: int) -> str:
    return f"calls-{types}"


def p50(types: int) -> str:
    return f"p50-{types}"


def p99(types: int) -> str:
    return f"p99-{types}"


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal in up to three terms: times better than AutoGen, times the floor at most, an absolute figure."""

    ratio: float | None = None
    of_floor: float | None = None
    absolute: float | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the benchmark. `gate` and `goal.ratio` say how many times better than AutoGen."""

    key: str
    title: str
    unit: Unit
    place: Literal["in one process", "across processes"]
    gate: float | None = None
    goal: Goal = Goal()

    @property
    def more_is_better(self) -> bool:
        return self.unit == "/s"


def _across(types: int) -> tuple[Measure, ...]:
    kinds = "1 agent type" if types == 1 else f"{types} agent types"
    place: Literal["across processes"] = "across processes"
    return (
        Measure(delivered(types), f"messages delivered, {kinds}", "/s", place, 3, Goal(6, absolute=15_000)),
        Measure(calls_per_second(types), f"calls, 100 in flight, {kinds}", "/s", place, 3, Goal(6)),
        Measure(p50(types), f"call p50, {kinds}", "µs", place, 1, Goal(2, of_floor=1.5)),
        Measure(p99(types), f"call p99, {kinds}", "µs", place),
    )


MEASURES = {
    measure.key: measure
    for measure in (
        Measure(CALL, "call and reply, one at a time", "µs", "in one process", 20, Goal(30)),
        Measure(CALL_IN_FLIGHT, "call and reply, 100 in flight", "µs", "in one process", 12, Goal(20)),
        Measure(PUBLISH[1], "publish, per delivery, 1 subscriber", "µs", "in one process", 8, Goal(20)),
        Measure(PUBLISH[10], "publish, per delivery, 10 subscribers", "µs", "in one process", 10, Goal(20)),
        Measure(PUBLISH[100], "publish, per delivery, 100 subscribers", "µs", "in one process", 10, Goal(20)),
        Measure(MEMORY, "memory of an idle agent", "B", "in one process", None, Goal(absolute=800)),
        *(measure for types in TYPES for measure in _across(types)),
    )
}
