"""The loop as a table: a state, an event, what becomes of it."""

from __future__ import annotations

import pytest

from stagebell.agents.events import (
    AnswerRejected,
    Begin,
    CancelAsked,
    Event,
    ModelFailed,
    Overdue,
    RequestModel,
    StepSetAside,
    TaskGiven,
)
from stagebell.agents.limits import Limits
from stagebell.agents.loop import due, next_step
from stagebell.agents.state import Job, LoopState
from stagebell.messages.conversation import Finished, Returned, RunStatus, TerminationReason
from stagebell.messages.tool_calls import ErrorCode
from tests.agents.playing import LIMITS, USED, done, got, play, result_of, wants

pytestmark = pytest.mark.unit


def test_a_task_leads_to_a_request() -> None:
    step = play()
    assert [type(action) for action in step.actions] == [Begin, RequestModel]
    assert step.state.conversation[0].kind == "asked"


def test_two_steps_and_four_messages() -> None:
    """The model asks for one tool, gets its result, and answers."""
    step = play(wants("add"), got("add"), done())
    assert [entry.kind for entry in step.state.conversation] == ["asked", "decided", "returned", "decided", "finished"]
    result = result_of(step)
    assert (result.status, result.reason, result.output) == ("succeeded", "final_output", 42)
    assert (result.steps, result.last_tool) == (2, "add")
    assert result.usage == USED + USED


def test_groups_run_one_after_the_other() -> None:
    step = play(wants("a", "b", "c", groups={"a": 0, "b": 0, "c": 1}))
    assert due(step.state) == step.actions[-1]
    assert [each.call.id for each in step.actions[-1].calls] == ["a", "b"]
    step = play(got("a", "b"), state=step.state)
    assert [each.call.id for each in step.actions[-1].calls] == ["c"]
    step = play(got("c"), state=step.state)
    assert step.actions == (RequestModel(),)


@pytest.mark.parametrize(
    ("limits", "events", "status", "reason"),
    [
        (Limits(max_steps=1), [done()], RunStatus.SUCCEEDED, TerminationReason.FINAL_OUTPUT),
        (Limits(max_steps=1), [wants("a")], RunStatus.FAILED, TerminationReason.MAX_STEPS),
        (Limits(max_tokens=15), [wants("a")], RunStatus.FAILED, TerminationReason.BUDGET),
        (Limits(max_cost=0.4), [wants("a")], RunStatus.FAILED, TerminationReason.BUDGET),
        (Limits(timeout=1), [wants("a"), got("a", at=1001)], RunStatus.FAILED, TerminationReason.TIMEOUT),
        (LIMITS, [Overdue("a/1#1", 5)], RunStatus.FAILED, TerminationReason.TIMEOUT),
        (LIMITS, [CancelAsked("a/1#1", 5)], RunStatus.CANCELLED, TerminationReason.CANCELLED),
        (
            LIMITS,
            [wants("a"), got("a", error=True, fatal="no way")],
            RunStatus.FAILED,
            TerminationReason.FATAL_TOOL_ERROR,
        ),
        (LIMITS, [ModelFailed("down", 3, final=True)], RunStatus.FAILED, TerminationReason.MODEL_ERROR),
        (LIMITS, [AnswerRejected("x", "rude", USED, 3, final=True)], RunStatus.FAILED, TerminationReason.REFUSED),
        (
            Limits(output_retries=0),
            [AnswerRejected("x", "no JSON", USED, 3)],
            RunStatus.FAILED,
            TerminationReason.OUTPUT_INVALID,
        ),
        (LIMITS, [StepSetAside("a/1#1", 5, "crashed")], RunStatus.FAILED, TerminationReason.SET_ASIDE),
        (Limits(max_hops=0), [wants("b", kind="run")], RunStatus.FAILED, TerminationReason.HOP_LIMIT),
        (
            Limits(repeated_calls=2),
            [wants("a"), got("a"), wants("a"), got("a")],
            RunStatus.FAILED,
            TerminationReason.REPEATED_CALL,
        ),
    ],
)
def test_each_way_to_end(limits: Limits, events: list[Event], status: RunStatus, reason: TerminationReason) -> None:
    """Each reason has its event or its bound, and only an accepted output is a success."""
    step = play(*events, limits=limits)
    result = result_of(step)
    assert (result.status, result.reason) == (status, reason)
    assert due(step.state) is None
    if status is not RunStatus.SUCCEEDED:
        assert result.output is None
        assert result.text
    last = step.state.conversation[-1]
    assert isinstance(last, Finished)
    assert (last.status, last.reason) == (status, reason)


def test_every_reason_is_reached_by_a_test_of_this_file() -> None:
    table = test_each_way_to_end.pytestmark[0].args[1]
    assert {row[3] for row in table} == set(TerminationReason)


def test_a_refused_task_never_begins() -> None:
    step = next_step(LoopState(), TaskGiven(Job("a/1#1", "x"), 1, refused="not for us"), LIMITS)
    assert result_of(step).reason is TerminationReason.REFUSED
    assert due(step.state) is None


def test_the_repeated_tool_is_named() -> None:
    step = play(wants("look"), got("look"), wants("look"), got("look"), limits=Limits(repeated_calls=2))
    assert "look" in result_of(step).text


@pytest.mark.parametrize(
    "second", [[wants("a", arguments='{"x": 1}'), got("a")], [wants("a"), got("a", value="other")]]
)
def test_other_arguments_or_other_results_are_no_repetition(second: list[Event]) -> None:
    step = play(wants("a"), got("a"), *second, limits=Limits(repeated_calls=2))
    assert step.actions == (RequestModel(),)


def test_white_space_makes_no_other_arguments() -> None:
    events: list[Event] = [
        wants("a", arguments='{"x": 1, "y": 2}'),
        got("a"),
        wants("a", arguments='{ "x":1,"y": 2 }'),
        got("a"),
    ]
    assert result_of(play(*events, limits=Limits(repeated_calls=2))).reason is TerminationReason.REPEATED_CALL


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_so_many_bad_outputs_lead_to_one_more_request(retries: int) -> None:
    limits = Limits(output_retries=retries)
    step, requests = play(limits=limits), 0
    while isinstance(step.actions[-1], RequestModel):
        requests += 1
        step = play(AnswerRejected("{", "no JSON", USED, 2), state=step.state, limits=limits)
    assert requests == retries + 1
    assert result_of(step).reason is TerminationReason.OUTPUT_INVALID
    assert result_of(step).output is None


def test_a_request_that_failed_is_made_again_so_many_times_in_a_row() -> None:
    limits = Limits(model_retries=1)
    step = play(ModelFailed("down", 2), limits=limits)
    assert step.actions == (RequestModel(retries=1),)
    step = play(wants("a"), got("a"), ModelFailed("down", 4), state=step.state, limits=limits)
    assert step.actions == (RequestModel(retries=1),)
    step = play(ModelFailed("down", 5), state=step.state, limits=limits)
    assert result_of(step).reason is TerminationReason.MODEL_ERROR


def test_a_failed_call_is_told_to_the_model() -> None:
    step = play(wants("a"), got("a", error=True))
    assert step.actions == (RequestModel(),)


def test_a_terminated_run_stays_as_it_is() -> None:
    state = play(done()).state
    for event in (wants("a"), got("a"), done(), CancelAsked("a/1#1", 5), Overdue("a/1#1", 5), ModelFailed("x", 5)):
        step = play(event, state=state)
        assert step.state is state
        assert step.actions == ()


def test_at_the_step_limit_no_tool_is_begun() -> None:
    step = play(wants("a"), limits=Limits(max_steps=1))
    codes = [entry.result.code for entry in step.state.conversation if isinstance(entry, Returned)]
    assert codes == [ErrorCode.CANCELLED]
    assert "unfinished" in result_of(step).text
