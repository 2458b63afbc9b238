"""The state of the loop as data, and the bounds of runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stagebell.agents.events import (
    CallsHandled,
    TaskGiven,
    Waits,
)
from stagebell.agents.limits import Limits
from stagebell.agents.state import Job, LoopState, dump_state, read_state
from stagebell.errors import MalformedState
from stagebell.messages.conversation import Usage
from tests.agents.playing import USED, done, play, wants

pytestmark = pytest.mark.unit


def test_a_state_is_json_and_comes_back_as_it_was() -> None:
    state = play(
        wants("pay", "b"),
        CallsHandled((Waits("pay", "approval", {"a": [1]}),), 3, business={"order": 7}),
        TaskGiven(Job("a/1#2", "two", limits=Limits(max_steps=1), business={"x": 1}), 4),
    ).state
    data = json.loads(json.dumps(dump_state(state)))
    assert read_state("a/1", data) == state
    assert read_state("a/1", {}) == LoopState()


def test_the_control_section_answers_by_fields() -> None:
    """Is a call waiting for an approval, was it done, was the step committed, may it be made again?"""
    state = play(wants("pay", "b"), CallsHandled((Waits("pay", "approval", {}),), 3)).state
    control = dump_state(state)["control"]["run"]
    assert control["step"] == 1
    assert [each["call"]["id"] for each in control["pending"]] == ["pay", "b"]
    assert control["waiting_for"][0]["kind"] == "approval"
    assert state.control.run is not None
    assert not state.control.run.terminated


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"control": {"run": 1}}, "control"),
        ({"control": {"sequnce": 1}}, "sequnce"),
        ({"conversation": [{"kind": "asekd"}]}, "conversation"),
        ({"buisness": {}}, "buisness"),
    ],
)
def test_a_state_that_is_none_is_refused_by_section(data: dict[str, Any], named: str) -> None:
    with pytest.raises(MalformedState, match=named):
        read_state("a/1", data)


def test_nothing_that_bounds_a_run_is_refused() -> None:
    unbounded = Limits(max_steps=None)
    with pytest.raises(ValueError, match="max_steps"):
        unbounded.check()
    for one in (Limits(), replace_none(timeout=3), replace_none(max_tokens=5), replace_none(max_cost=1)):
        assert one.check() is one


def replace_none(**bounds: Any) -> Limits:
    return Limits(max_steps=None, **bounds)


def test_limits_only_become_narrower() -> None:
    inner = Limits(max_steps=10, max_tokens=None, timeout=5).within(Limits(max_steps=3, max_tokens=7, max_hops=1))
    assert (inner.max_steps, inner.max_tokens, inner.timeout, inner.max_hops) == (3, 7, 5, 1)
    share = Limits(max_steps=10, max_tokens=100).share(4, USED, among=2)
    assert share is not None
    assert (share.max_steps, share.max_tokens, share.max_hops) == (3, 42, 7)
    assert Limits(max_steps=3).share(2, USED, among=2) is None
    assert Limits(max_hops=0).share(0, Usage(), among=1) is None


def test_a_deadline_is_the_earlier_one() -> None:
    for job, limits, expected in ((None, 2.0, 2001), (500, 2.0, 500), (5000, None, 5000), (None, None, None)):
        step = play(limits=Limits(timeout=limits), deadline=job)
        assert step.state.control.run is not None
        assert step.state.control.run.deadline == expected


def test_business_facts_of_a_task_come_with_its_run() -> None:
    state = play(business={"order": 1}).state
    state = play(TaskGiven(Job("a/1#2", "two", business={"order": 2}), 2), state=state).state
    assert state.business == {"order": 1}
    assert play(done(), state=state).state.business == {"order": 2}
    assert replace(state) == state
