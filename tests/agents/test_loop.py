"""The loop as a table: a state, an event, what becomes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stagebell.agents.events import (
    AnswerRejected,
    Begin,
    CallApproved,
    CallsHandled,
    CancelAsked,
    CancelBelow,
    Compensate,
    Event,
    Finish,
    HoldAsked,
    ModelDecided,
    ModelFailed,
    OutputAccepted,
    Overdue,
    PersonAnswered,
    RequestModel,
    RunCalls,
    RunReturned,
    Step,
    TaskGiven,
    Undone,
    Waits,
    Withdraw,
)
from stagebell.agents.limits import Limits
from stagebell.agents.loop import due, next_step
from stagebell.agents.state import Job, LoopState, Pending, Undo, dump_state, read_state
from stagebell.errors import MalformedState
from stagebell.messages.conversation import Finished, Returned, RunResult, RunStatus, TerminationReason, Usage
from stagebell.messages.tool_calls import ErrorCode, HandOff, ToolCall, ToolResult, UseTools

pytestmark = pytest.mark.unit

USED = Usage(requests=1, prompt_tokens=10, completion_tokens=5, cost=0.5)
LIMITS = Limits(max_steps=5)


def wants(*names: str, groups: dict[str, int] | None = None, kind: Any = "tool", arguments: str = "{}") -> ModelDecided:
    """The model wants these tools; the id of each call is the name with a number when there are several."""
    calls = tuple(ToolCall(id=name, name=name.rstrip("0123456789"), arguments=arguments) for name in names)
    plan = tuple(
        Pending(call, group=(groups or {}).get(call.id, number), kind=kind, to=call.name if kind != "tool" else "")
        for number, call in enumerate(calls)
    )
    return ModelDecided(UseTools(calls=calls), plan, USED, at=2)


def got(*ids: str, error: bool = False, at: int = 3, value: Any = "ok", **more: Any) -> CallsHandled:
    """These calls have their results."""
    results = [
        ToolResult.error(ToolCall(id=id, name=id.rstrip("0123456789")), ErrorCode.BUSINESS, "no")
        if error
        else ToolResult(call_id=id, tool_name=id.rstrip("0123456789"), value=value)
        for id in ids
    ]
    return CallsHandled(tuple(results), at, **more)


def play(*events: Event, state: LoopState | None = None, limits: Limits = LIMITS, **job: Any) -> Step:
    """One event after the other, after a task; the last step."""
    step = Step(state or LoopState())
    if state is None:
        step = next_step(step.state, TaskGiven(Job("a/1#1", "add", **job), at=1), limits)
    for event in events:
        step = next_step(step.state, event, limits)
    return step


def done(output: Any = 42, at: int = 9) -> OutputAccepted:
    return OutputAccepted(output, USED, at)


def result_of(step: Step) -> RunResult:
    finish = next(action for action in step.actions if isinstance(action, Finish))
    return finish.result


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
    assert [each.call.id for each in step.actions[-1].calls] == ["a", "b"]  # type: ignore[union-attr]
    step = play(got("a", "b"), state=step.state)
    assert [each.call.id for each in step.actions[-1].calls] == ["c"]  # type: ignore[union-attr]
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
    table = test_each_way_to_end.pytestmark[0].args[1]  # type: ignore[attr-defined]
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


def test_at_the_step_limit_no_tool_is_begun() -> None:
    step = play(wants("a"), limits=Limits(max_steps=1))
    codes = [entry.result.code for entry in step.state.conversation if isinstance(entry, Returned)]
    assert codes == [ErrorCode.CANCELLED]
    assert "unfinished" in result_of(step).text


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


def test_an_approval_is_waited_for() -> None:
    step = play(wants("pay", "b"), CallsHandled((Waits("pay", "approval", {"amount": 5}),), 3))
    run = step.state.control.run
    assert run is not None
    assert [(each.call_id, each.kind, each.payload) for each in run.waiting_for] == [("pay", "approval", {"amount": 5})]
    assert run.status is RunStatus.WAITING
    assert due(step.state) is None
    step = play(CallApproved("pay", {"approved": True}, 4), state=step.state)
    (call,) = step.actions[-1].calls  # type: ignore[union-attr]
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
    assert [each.call.id for each in step.actions[-1].calls] == ["c"]  # type: ignore[union-attr]


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


def below(**changes: Any) -> RunResult:
    """How the run of another agent ended."""
    result = RunResult(
        run_id="b/1#9",
        status=RunStatus.SUCCEEDED,
        reason=TerminationReason.FINAL_OUTPUT,
        output="theirs",
        steps=2,
        usage=USED,
    )
    return result.model_copy(update=changes)


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


def handed(*events: Event) -> Step:
    """A run that was handed over, and what came then."""
    call = ToolCall(id="b", name="to_b")
    decision = ModelDecided(
        HandOff(to="b", message="yours", call=call), (Pending(call, kind="handoff", to="b"),), USED, 2
    )
    return play(decision, CallsHandled((Waits("b", "run", {}),), 3), *events)


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


def undo(id: str) -> Undo:
    return Undo(ToolCall(id=id, name=id), ToolResult(call_id=id, tool_name=id, value="ok"))


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


def test_a_cancel_that_was_meant_for_another_run_makes_calls_unsure() -> None:
    """They may have been cut off, and their tools have to find out."""
    state = play(wants("a", "b"), TaskGiven(Job("a/1#2", "two"), 3)).state
    step = play(CancelAsked("a/1#2", 4), state=state)
    assert [(each.call.id, each.unsure) for each in step.actions[-1].calls] == [("a", True)]  # type: ignore[union-attr]
    known = play(CancelAsked("a/1#2", 4, cut_off=False), state=state)
    assert not known.actions[-1].calls[0].unsure  # type: ignore[union-attr]


def test_calls_that_were_not_begun_are_told_so() -> None:
    step = play(wants("a"), CancelAsked("a/1#1", 5, cut_off=False))
    codes = [entry.result.code for entry in step.state.conversation if isinstance(entry, Returned)]
    assert codes == [ErrorCode.CANCELLED]
