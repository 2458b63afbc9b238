"""A run waits for a person or another run, and what it waits for comes, or never will."""

from __future__ import annotations

import pytest

from stagebell.agents.events import (
    CallApproved,
    CallsHandled,
    CancelAsked,
    CancelBelow,
    Compensate,
    PersonAnswered,
    RequestModel,
    RunNotTaken,
    RunReturned,
    StepSetAside,
    Undone,
    Waits,
    Withdraw,
)
from stagebell.agents.loop import due
from stagebell.messages.conversation import Returned, RunStatus, TerminationReason
from stagebell.messages.tool_calls import ErrorCode, ToolResult
from tests.agents.playing import below, got, handed, play, result_of, undo, wants

pytestmark = pytest.mark.unit


def test_an_approval_is_waited_for() -> None:
    step = play(wants("pay", "b"), CallsHandled((Waits("pay", "approval", {"amount": 5}),), 3))
    run = step.state.control.run
    assert run is not None
    assert [(each.call_id, each.kind, each.payload) for each in run.waiting_for] == [("pay", "approval", {"amount": 5})]
    assert run.status is RunStatus.WAITING
    assert due(step.state) is None
    step = play(CallApproved("pay", {"approved": True}, 4), state=step.state)
    (call,) = step.actions[-1].calls
    assert (call.call.id, call.decided) == ("pay", {"approved": True})
    again = play(CallApproved("pay", {"approved": False}, 5), state=step.state)
    assert again.state is step.state


def test_others_of_the_group_go_on_while_one_waits() -> None:
    outcomes = (
        Waits("pay", "approval"),
        ToolResult(call_id="b", tool_name="b", value=1),
    )
    step = play(wants("pay", "b", "c", groups={"pay": 0, "b": 0, "c": 1}), CallsHandled(outcomes, 3))
    assert due(step.state) is None
    step = play(CallApproved("pay", True, 4), got("pay"), state=step.state)
    assert [each.call.id for each in step.actions[-1].calls] == ["c"]


def test_a_question_is_waited_for() -> None:
    step = play(wants("ask", kind="question"), CallsHandled((Waits("ask", "question", "how many?"),), 3))
    assert due(step.state) is None
    step = play(PersonAnswered("ask", "three", 4), state=step.state)
    assert step.actions == (RequestModel(),)
    assert play(PersonAnswered("ask", "four", 5), state=step.state).state is step.state


def test_cancelling_lets_go_of_what_was_waited_for() -> None:
    outcomes = (Waits("pay", "approval", 1), Waits("b", "run", {"run_id": "b/1#9"}))
    step = play(wants("pay", "b", groups={"pay": 0, "b": 0}), CallsHandled(outcomes, 3), CancelAsked("a/1#1", 5))
    assert Withdraw("pay", "approval", 1) in step.actions
    assert CancelBelow({"run_id": "b/1#9"}) in step.actions


def test_a_run_below_is_a_call_and_counts() -> None:
    step = play(wants("b", kind="run"), CallsHandled((Waits("b", "run", {}),), 3), RunReturned("b", below(), 4))
    run = step.state.control.run
    assert run is not None
    assert (run.step, run.steps, run.usage.requests) == (1, 3, 2)
    assert step.actions == (RequestModel(),)
    failed = play(
        wants("b", kind="run"),
        CallsHandled((Waits("b", "run", {}),), 3),
        RunReturned("b", below(status=RunStatus.FAILED, reason=TerminationReason.TIMEOUT, output=None, text="slow"), 4),
    )
    returned = failed.state.conversation[-1]
    assert isinstance(returned, Returned)
    assert "slow" in returned.result.text


def test_after_a_hand_over_the_other_run_ends_this_one() -> None:
    result = result_of(handed(RunReturned("b", below(), 4)))
    assert (result.status, result.output, result.steps) == (RunStatus.SUCCEEDED, "theirs", 3)
    failed = below(status=RunStatus.FAILED, reason=TerminationReason.HOP_LIMIT, output=None, text="a → b → a")
    result = result_of(handed(RunReturned("b", failed, 4)))
    assert (result.status, result.reason, result.text) == (
        RunStatus.FAILED,
        TerminationReason.HOP_LIMIT,
        "a → b → a",
    )
    result = result_of(handed(RunReturned("b", below(), 4, refused="a number was wanted")))
    assert result.reason is TerminationReason.OUTPUT_INVALID


@pytest.mark.parametrize("fatal", [True, False])
def test_a_run_that_nobody_takes(fatal: bool) -> None:
    step = play(
        wants("b", kind="run"), CallsHandled((Waits("b", "run", {}),), 3), RunNotTaken("b", "no ModelAgent", 4, fatal)
    )
    returned = step.state.conversation[2 if fatal else -1]
    if fatal:
        assert (result_of(step).reason, "no ModelAgent" in result_of(step).text) == ("fatal_tool_error", True)
        assert not any(isinstance(action, CancelBelow) for action in step.actions)
    else:
        assert step.actions == (RequestModel(),)
        assert isinstance(returned, Returned)
        assert returned.result.code is ErrorCode.FATAL
    assert play(RunNotTaken("b", "again", 5), state=step.state).state is step.state


def test_calls_of_a_step_that_was_set_aside_may_have_been_made() -> None:
    step = play(wants("a", "b"), StepSetAside("a/1#1", 5, "crashed"))
    codes = [entry.result.code for entry in step.state.conversation if isinstance(entry, Returned)]
    assert codes == [ErrorCode.OUTCOME_UNKNOWN, ErrorCode.CANCELLED]
    assert play(StepSetAside("a/1#1", 6, "again"), state=step.state).state is step.state


def test_what_cannot_be_undone_since_that_was_set_aside_is_told() -> None:
    """And the others are undone."""
    step = play(
        wants("a", "b"), got("a", undoable=(undo("a"),)), got("b", undoable=(undo("b"),)), CancelAsked("a/1#1", 5)
    )
    step = play(StepSetAside("a/1#1", 6, "crashed"), state=step.state)
    assert step.actions == (Compensate(undo("a")),)
    step = play(Undone("a", 7), state=step.state)
    assert result_of(step).status is RunStatus.CANCELLED
    assert "b (call b) could not be undone: crashed" in result_of(step).text
