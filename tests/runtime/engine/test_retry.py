"""When a message is tried again, and after what delay."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

import pytest
from autogen_core import AgentId
from autogen_core.tool_agent import ToolNotFoundException
from hypothesis import given
from hypothesis import strategies as st

from stagebell import Retry, agent_options, errors
from stagebell.runtime.engine.options import options_of

pytestmark = pytest.mark.unit


def test_delays_grow_by_the_factor_up_to_the_longest() -> None:
    policy = Retry(first_delay=0.5, factor=3, longest_delay=10, jitter=0)
    assert [policy.delay_before(n, 0.0) for n in (2, 3, 4, 5, 100_000)] == [0.5, 1.5, 4.5, 10, 10]


def test_chance_takes_off_its_share_at_most() -> None:
    policy = Retry(first_delay=8, longest_delay=8, jitter=0.25)
    assert (policy.delay_before(2, 0.0), policy.delay_before(2, 1.0)) == (8, 6)


@given(st.integers(2, 10**6), st.floats(0, 1), st.floats(0, 1), st.floats(1, 1e6), st.floats(0, 60))
def test_a_delay_is_never_negative_nor_longer_than_the_longest(
    attempt: int, chance: float, jitter: float, factor: float, longest: float
) -> None:
    policy = Retry(jitter=jitter, factor=factor, longest_delay=longest)
    assert 0 <= policy.delay_before(attempt, chance) <= longest


ALICE = AgentId("agent", "alice")
FINAL: list[BaseException] = [
    CancelledError(),
    errors.UnregisteredType("Note"),
    errors.MalformedMessage("Note", "no"),
    errors.StateTooLarge(ALICE, 2, 1),
    errors.CantHandle(ALICE, "Note"),
    errors.NonDeterministicReplay(ALICE, "0.0"),
    errors.DeadLettered(ALICE, "m", "crashed"),
    KeyError("mine"),
]
NOT_FINAL: list[BaseException] = [
    ValueError("MessageError is one, too"),
    errors.CallCycleError([ALICE, ALICE]),
    errors.Undeliverable(ALICE, "nobody"),
    ToolNotFoundException(call_id="1", content="no", name="add"),
]


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
def test_what_cannot_get_better_is_final(error: BaseException) -> None:
    assert Retry(final=(LookupError,)).is_final(error)


@pytest.mark.parametrize("error", NOT_FINAL, ids=lambda error: type(error).__name__)
def test_what_may_get_better_is_not(error: BaseException) -> None:
    assert not Retry(final=(LookupError,)).is_final(error)


WRONG: dict[str, dict[str, Any]] = {
    "attempts": {"attempts": 0},
    "first_delay": {"first_delay": -1},
    "longest_delay": {"longest_delay": float("inf")},
    "factor": {"factor": 0.5},
    "jitter": {"jitter": 2},
    "final": {"final": (ValueError("no class"),)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_makes_no_sense_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Retry(**WRONG[name])


def test_each_class_has_its_policy() -> None:
    @agent_options(retry=Retry(attempts=7))
    class Seven: ...

    @agent_options(retry=None)
    class Never: ...

    assert [options_of(cls).retry for cls in (Seven, Never, None)] == [Retry(attempts=7), None, Retry(attempts=3)]
