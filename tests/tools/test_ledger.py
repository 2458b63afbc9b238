"""What follows for a call that may have been made before: the decision alone, for each way in which workers may die."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagebell.tools.declared import StatusKind, Strategy
from stagebell.tools.ledger import Next, decide

pytestmark = pytest.mark.unit

FIRST_TIME = [(strategy, 0, False, None, Next.RUN) for strategy in Strategy]
NOTED = [(strategy, attempts, True, None, Next.ANSWER) for strategy in Strategy for attempts in (1, 3)]
MAY_HAVE_RUN = [
    (Strategy.PURE, 1, False, None, Next.RUN),
    (Strategy.IDEMPOTENT, 1, False, None, Next.RUN),
    (Strategy.IDEMPOTENT, 3, False, None, Next.RUN),
    (Strategy.ONCE, 1, False, None, Next.UNKNOWN),
    (Strategy.UNDECLARED, 1, False, None, Next.UNKNOWN),
    (Strategy.STATUS, 1, False, None, Next.ASK),
    (Strategy.STATUS, 2, False, "succeeded", Next.SUCCEEDED),
    (Strategy.STATUS, 2, False, "failed", Next.FAILED),
    (Strategy.STATUS, 2, False, "absent", Next.RUN),
    (Strategy.STATUS, 2, False, "processing", Next.WAIT),
]


@pytest.mark.parametrize(("strategy", "attempts", "result", "status", "expected"), FIRST_TIME + NOTED + MAY_HAVE_RUN)
def test_the_decision(
    strategy: Strategy, attempts: int, result: bool, status: StatusKind | None, expected: Next
) -> None:
    assert decide(strategy, attempts=attempts, result=result, status=status) is expected


def test_who_waits_no_more_does_not_know() -> None:
    assert decide(Strategy.STATUS, attempts=1, result=False, status="processing", patient=False) is Next.UNKNOWN


class Point(IntEnum):
    """Where a worker dies, in the order of one attempt."""

    BEFORE_INTENT = 0
    AFTER_INTENT = 1
    BEFORE_EFFECT = 2
    AFTER_EFFECT = 3
    AFTER_RESULT = 4
    NEVER = 5


class Died(Exception):
    """The worker."""


@dataclass
class World:
    """A journal, and a service outside that knows its calls by their key when it is told one."""

    strategy: Strategy
    intents: int = 0
    result: str | None = None
    bodies: int = 0
    effects: int = 0
    keys: set[str] = field(default_factory=set[str])

    def attempt(self, dies: Point) -> str:
        """One attempt at the turn; what the call comes to."""

        def reach(point: Point) -> None:
            if dies == point:
                raise Died

        reach(Point.BEFORE_INTENT)
        attempts = 0
        if self.strategy is not Strategy.PURE:
            attempts, self.intents = self.intents, self.intents + (self.result is None)
        reach(Point.AFTER_INTENT)
        step = decide(self.strategy, attempts=attempts, result=self.result is not None)
        if step is Next.ASK:
            status: StatusKind = "succeeded" if self.effects else "absent"
            step = decide(self.strategy, attempts=attempts, result=False, status=status)
        if step is Next.ANSWER:
            assert self.result is not None
            return self.result
        if step is Next.RUN:
            self.bodies += 1
            reach(Point.BEFORE_EFFECT)
            if self.strategy is not Strategy.IDEMPOTENT or "key" not in self.keys:
                self.effects += 1
                self.keys.add("key")
            reach(Point.AFTER_EFFECT)
            step = Next.SUCCEEDED
        if self.strategy is not Strategy.PURE:
            self.result = step.value
        reach(Point.AFTER_RESULT)
        return step.value


@given(st.sampled_from(Strategy), st.lists(st.sampled_from(list(Point)[:-1]), max_size=5))
def test_wherever_workers_die_nothing_is_done_blindly_a_second_time(strategy: Strategy, deaths: list[Point]) -> None:
    world = World(strategy)
    for point in deaths:
        with pytest.raises(Died):
            world.attempt(point)
            raise Died  # it answered before it came there
    outcome = world.attempt(Point.NEVER)
    if strategy in (Strategy.ONCE, Strategy.UNDECLARED):
        assert world.bodies <= 1
    if strategy is not Strategy.PURE:
        assert world.effects <= 1
    if outcome == "succeeded":
        assert world.effects >= 1
    if strategy in (Strategy.IDEMPOTENT, Strategy.STATUS):
        assert (outcome, world.effects) == ("succeeded", 1)
    if outcome == "unknown":
        assert not {Point.AFTER_INTENT, Point.BEFORE_EFFECT, Point.AFTER_EFFECT}.isdisjoint(deaths)
