"""Tasks come while a run goes on, and somebody cancels, pauses or steps it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagebell.agents.events import (
    Begin,
    CancelAsked,
    Compensate,
    Finish,
    HoldAsked,
    Overdue,
    RequestModel,
    RunCalls,
    TaskGiven,
    Undone,
)
from stagebell.agents.loop import due
from stagebell.agents.state import Job
from stagebell.messages.conversation import Returned, RunStatus
from stagebell.messages.tool_calls import ErrorCode
from tests.agents.playing import done, got, play, result_of, undo, wants

pytestmark = pytest.mark.unit


def test_a_later_task_begins_a_run_of_its_own() -> None:
    """With a count of its own, in the same conversation."""
    state = play(wants("a"), got("a"), done()).state
    step = play(TaskGiven(Job("a/1#2", "and then?"), 20), done("later"), state=state)
    assert result_of(step).steps == 1
    assert [entry.run_id for entry in step.state.conversation].count("a/1#1") == 5


def test_tasks_wait_in_line() -> None:
    state = play(TaskGiven(Job("a/1#2", "two"), 2), TaskGiven(Job("a/1#3", "three"), 2)).state
    assert [job.run_id for job in state.control.queue] == ["a/1#2", "a/1#3"]
    step = play(done(), state=state)
    assert [type(action) for action in step.actions] == [Finish, Begin, RequestModel]
    assert step.state.control.run is not None
    assert step.state.control.run.run_id == "a/1#2"


def test_a_task_that_waits_in_line_can_be_cancelled() -> None:
    step = play(TaskGiven(Job("a/1#2", "two"), 2), CancelAsked("a/1#2", 3))
    assert result_of(step).status is RunStatus.CANCELLED
    assert step.state.control.queue == ()
    assert due(step.state) == RequestModel()


def test_a_task_that_came_twice_is_one() -> None:
    state = play().state
    assert play(TaskGiven(Job("a/1#1", "add"), 2), state=state).state is state
    over = play(done(), state=state).state
    assert play(TaskGiven(Job("a/1#1", "add"), 2), state=over).state is over


def test_many_tasks_whose_deadline_is_over_are_no_problem() -> None:
    state = play().state
    for number in range(2000):
        state = play(TaskGiven(Job(f"a/1#x{number}", "x", deadline=5), 2), state=state).state
    step = play(done(), state=state)
    assert sum(isinstance(action, Finish) for action in step.actions) == 2001
    assert step.state.control.active is None


def test_cancelling_gives_every_call_a_result() -> None:
    """What may have been under way is told from what was not begun."""
    step = play(wants("a", "b", "c", groups={"a": 0, "b": 1, "c": 1}), got("a"), CancelAsked("a/1#1", 5))
    returned = [entry.result for entry in step.state.conversation if isinstance(entry, Returned)]
    assert [(each.call_id, each.code) for each in returned] == [
        ("a", None),
        ("b", ErrorCode.OUTCOME_UNKNOWN),
        ("c", ErrorCode.OUTCOME_UNKNOWN),
    ]
    step = play(wants("a", "b"), CancelAsked("a/1#1", 5))
    codes = [entry.result.code for entry in step.state.conversation if isinstance(entry, Returned)]
    assert codes == [ErrorCode.OUTCOME_UNKNOWN, ErrorCode.CANCELLED]


def test_a_pause_takes_effect_at_the_next_boundary() -> None:
    step = play(wants("a"), HoldAsked("a/1#1", "paused", 3))
    assert step.actions == ()
    run = step.state.control.run
    assert run is not None
    assert run.status is RunStatus.PAUSED
    step = play(HoldAsked("a/1#1", "go", 4), state=step.state)
    assert isinstance(step.actions[-1], RunCalls)


def test_one_step_by_hand() -> None:
    step = play(hold="paused")
    assert not any(isinstance(action, RequestModel) for action in step.actions)
    step = play(HoldAsked("a/1#1", "once", 2), state=step.state)
    assert step.actions == (RequestModel(),)
    step = play(wants("a"), state=step.state)
    assert step.actions == ()
    step = play(HoldAsked("a/1#1", "once", 3), got("a"), state=step.state)
    assert due(step.state) is None
    step = play(HoldAsked("a/1#1", "go", 4), state=step.state)
    assert step.actions == (RequestModel(),)


def test_a_paused_run_can_be_cancelled() -> None:
    step = play(wants("a"), HoldAsked("a/1#1", "paused", 3), CancelAsked("a/1#1", 4))
    assert result_of(step).status is RunStatus.CANCELLED


def test_what_was_done_is_undone_the_last_first_each_once() -> None:
    step = play(
        wants("a", "b"),
        got("a", undoable=(undo("a"),)),
        got("b", undoable=(undo("b"),)),
        CancelAsked("a/1#1", 5, "enough"),
    )
    assert step.actions == (Compensate(undo("b")),)
    assert play(Undone("a", 6), done(), Overdue("a/1#1", 6, cut_off=False), state=step.state).state is step.state
    step = play(CancelAsked("a/1#1", 6), state=step.state)
    assert step.actions == (Compensate(replace(undo("b"), unsure=True)),)
    step = play(Undone("b", 6), state=step.state)
    assert step.actions == (Compensate(undo("a")),)
    step = play(Undone("a", 7, "it was sent already"), state=step.state)
    result = result_of(step)
    assert result.status is RunStatus.CANCELLED
    assert "enough" in result.text
    assert "it was sent already" in result.text
    assert due(step.state) is None


def test_a_success_undoes_nothing() -> None:
    step = play(wants("a"), got("a", undoable=(undo("a"),)), done())
    assert not any(isinstance(action, Compensate) for action in step.actions)


def test_a_cancel_that_was_meant_for_another_run_makes_calls_unsure() -> None:
    """They may have been cut off, and their tools have to find out."""
    state = play(wants("a", "b"), TaskGiven(Job("a/1#2", "two"), 3)).state
    step = play(CancelAsked("a/1#2", 4), state=state)
    assert [(each.call.id, each.unsure) for each in step.actions[-1].calls] == [("a", True)]
    known = play(CancelAsked("a/1#2", 4, cut_off=False), state=state)
    assert not known.actions[-1].calls[0].unsure


def test_calls_that_were_not_begun_are_told_so() -> None:
    step = play(wants("a"), CancelAsked("a/1#1", 5, cut_off=False))
    codes = [entry.result.code for entry in step.state.conversation if isinstance(entry, Returned)]
    assert codes == [ErrorCode.CANCELLED]
