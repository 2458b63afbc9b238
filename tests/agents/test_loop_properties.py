"""What holds of the loop whatever the model, the tools and the people do, and in whatever order it is told."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagebell.agents.events import (
    AnswerRejected,
    CallApproved,
    CallsHandled,
    CancelAsked,
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
    RunNotTaken,
    RunReturned,
    StepSetAside,
    TaskGiven,
    Undone,
    Waits,
)
from stagebell.agents.limits import Limits
from stagebell.agents.loop import due, next_step
from stagebell.agents.state import Job, LoopState, Pending, Undo, dump_state, read_state
from stagebell.messages.conversation import Decided, Returned, RunResult, RunStatus, TerminationReason, Usage
from stagebell.messages.tool_calls import Ask, ErrorCode, HandOff, ToolCall, ToolResult, UseTools

pytestmark = pytest.mark.unit

RUNS = ("a/1#1", "a/1#2", "a/1#3")
limits = st.builds(
    Limits,
    max_steps=st.integers(1, 6),
    timeout=st.one_of(st.none(), st.floats(0.005, 0.2)),
    max_tokens=st.one_of(st.none(), st.integers(1, 60)),
    max_hops=st.integers(0, 2),
    output_retries=st.integers(0, 2),
    model_retries=st.integers(0, 2),
    repeated_calls=st.one_of(st.none(), st.integers(2, 3)),
)


class World:
    """A model, tools and people that do anything, and what has to hold after each event."""

    def __init__(self, data: st.DataObject, bounds: Limits) -> None:
        self.data = data
        self.bounds = bounds
        self.state = LoopState()
        self.at = 0
        self.calls = 0
        self.finished: Counter[str] = Counter()
        self.results: dict[str, RunResult] = {}
        self.undo_wanted: list[str] = []
        self.undone: list[str] = []

    def draw(self, what: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(what)

    def tell(self, event: Event) -> None:
        before = self.state
        step = next_step(before, event, self.bounds)
        self.state = step.state
        for action in step.actions:
            if isinstance(action, Finish):
                self.finished[action.result.run_id] += 1
                self.results[action.result.run_id] = action.result
        if isinstance(event, Undone) and step.state is not before:
            self.undone.append(event.call_id)
        if isinstance(event, CallsHandled) and step.state is not before:
            self.undo_wanted += [each.call.id for each in event.undoable]
        self.check(before)

    def check(self, before: LoopState) -> None:
        state, run = self.state, self.state.control.run
        assert state.conversation[: len(before.conversation)] == before.conversation
        assert max(self.finished.values(), default=0) <= 1
        if run is not None:
            assert 0 <= run.step <= (run.limits.max_steps or 0)
            assert run.result is None or self.results[run.run_id] == run.result
        calls, returned = calls_and_results(state)
        assert all(count == 1 for count in returned.values())
        assert set(returned) <= calls
        active = state.control.active
        open_calls = {each.call.id for each in active.pending} if active is not None else set()
        assert calls - set(returned) == open_calls
        if isinstance(due(state), RequestModel):
            assert not open_calls
        if active is None:
            assert not state.control.queue

    def check_is_json(self) -> None:
        assert read_state("a/1", json.loads(json.dumps(dump_state(self.state)))) == self.state

    def fitting(self) -> Event:
        """What the work that is due leads to."""
        work = due(self.state)
        match work:
            case RequestModel():
                return self.answer()
            case RunCalls():
                return CallsHandled(*self.outcomes(work), fatal=self.fatal(work))
            case Compensate():
                return Undone(work.undo.call.id, self.at, self.draw(st.sampled_from(["", "no"])))
            case None:
                return self.from_elsewhere()

    def answer(self) -> Event:
        usage = Usage(requests=1, prompt_tokens=3, completion_tokens=self.draw(st.integers(0, 9)))
        kind = self.draw(st.sampled_from(["tools", "tools", "tools", "handoff", "ask", "final", "bad", "down"]))
        call = self.new_call()
        match kind:
            case "final":
                return OutputAccepted(1, usage, self.at)
            case "bad":
                return AnswerRejected("?", "no", usage, self.at, final=self.draw(st.booleans()))
            case "down":
                return ModelFailed("down", self.at)
            case "handoff":
                return ModelDecided(
                    HandOff(to="b", call=call), (Pending(call, kind="handoff", to="b"),), usage, self.at
                )
            case "ask":
                return ModelDecided(Ask(question="?", call=call), (Pending(call, kind="question"),), usage, self.at)
        calls = [call, *(self.new_call() for _ in range(self.draw(st.integers(0, 2))))]
        groups = sorted(self.draw(st.integers(0, 2)) for _ in calls)
        plan = tuple(Pending(each, group) for each, group in zip(calls, groups, strict=True))
        return ModelDecided(UseTools(calls=tuple(calls)), plan, usage, self.at)

    def new_call(self) -> ToolCall:
        self.calls += 1
        return ToolCall(id=f"c{self.calls}", name=self.draw(st.sampled_from("ab")))

    def outcomes(self, work: RunCalls) -> tuple[tuple[ToolResult | Waits, ...], int, tuple[Undo, ...]]:
        outcomes: list[ToolResult | Waits] = []
        undoable: list[Undo] = []
        for each in work.calls:
            call = each.call
            if each.kind in ("run", "handoff"):
                outcomes.append(Waits(call.id, "run", {"run_id": "b/1#1"}))
            elif each.kind == "question":
                outcomes.append(Waits(call.id, "question"))
            elif each.decided is None and self.draw(st.integers(0, 5)) == 0:
                outcomes.append(Waits(call.id, "approval"))
            elif self.draw(st.booleans()):
                outcomes.append(ToolResult.error(call, ErrorCode.BUSINESS, "no"))
            else:
                result = ToolResult(call_id=call.id, tool_name=call.name, value=1)
                outcomes.append(result)
                if self.draw(st.booleans()):
                    undoable.append(Undo(call, result))
        return tuple(outcomes), self.at, tuple(undoable)

    def fatal(self, work: RunCalls) -> str:
        tools = [each.call.id for each in work.calls if each.kind == "tool"]
        return "no way" if tools and self.draw(st.integers(0, 9)) == 0 else ""

    def from_elsewhere(self) -> Event:
        run = self.state.control.active
        if run is None:
            fresh = [run_id for run_id in RUNS if run_id not in self.finished]
            return TaskGiven(Job(fresh[0] if fresh else RUNS[0], "x"), self.at)
        if run.hold == "paused":
            return HoldAsked(run.run_id, self.draw(st.sampled_from(["go", "once"])), self.at)
        wait = run.waiting_for[0]
        if wait.kind == "approval":
            return CallApproved(wait.call_id, True, self.at)
        if wait.kind == "question":
            return PersonAnswered(wait.call_id, "yes", self.at)
        status = self.draw(st.sampled_from([RunStatus.SUCCEEDED, RunStatus.FAILED]))
        reason = TerminationReason.FINAL_OUTPUT if status is RunStatus.SUCCEEDED else TerminationReason.MAX_STEPS
        below = RunResult(run_id="b/1#1", status=status, reason=reason, steps=self.draw(st.integers(0, 1)))
        return RunReturned(wait.call_id, below, self.at)

    def anything(self) -> Event:
        run_id = self.draw(st.sampled_from(RUNS))
        call_id = f"c{self.draw(st.integers(1, self.calls + 1))}"
        call = ToolCall(id=call_id, name="a")
        events: list[Event] = [
            TaskGiven(Job(run_id, "x"), self.at),
            CancelAsked(run_id, self.at),
            Overdue(run_id, self.at),
            StepSetAside(run_id, self.at, "crashed"),
            RunNotTaken(call_id, "no tasks", self.at),
            HoldAsked(run_id, self.draw(st.sampled_from(["go", "once", "paused"])), self.at),
            CallApproved(call_id, False, self.at),
            PersonAnswered(call_id, "?", self.at),
            Undone(call_id, self.at),
            CallsHandled((ToolResult(call_id=call_id, tool_name=call.name, value=1),), self.at),
        ]
        return self.draw(st.sampled_from(events))


def calls_and_results(state: LoopState) -> tuple[set[str], Counter[str]]:
    """The ids of all calls that were decided for, and how many results each has."""
    calls: set[str] = set()
    returned: Counter[str] = Counter()
    for entry in state.conversation:
        if isinstance(entry, Returned):
            returned[entry.result.call_id] += 1
        elif isinstance(entry, Decided):
            decision = entry.decision
            if isinstance(decision, UseTools):
                calls |= {call.id for call in decision.calls}
            elif isinstance(decision, HandOff | Ask) and decision.call is not None:
                calls.add(decision.call.id)
    return calls, returned


@settings(max_examples=60, deadline=None)
@given(data=st.data(), bounds=limits)
def test_whatever_happens(data: st.DataObject, bounds: Limits) -> None:
    """Bounds are kept, each call has one result, a result is final, and the state is JSON at any time."""
    world = World(data, bounds)
    for _ in range(30):
        world.at += data.draw(st.integers(0, 20))
        world.tell(world.fitting() if data.draw(st.integers(0, 3)) else world.anything())
    world.check_is_json()


@settings(max_examples=40, deadline=None)
@given(data=st.data(), bounds=limits)
def test_every_run_ends(data: st.DataObject, bounds: Limits) -> None:
    """When the work that is due is done, and others answer, each task has its result after finitely many events."""
    world = World(data, bounds)
    for run_id in RUNS:
        world.tell(TaskGiven(Job(run_id, "x"), 0))
    events = 0
    while world.state.control.active is not None:
        world.tell(world.fitting())
        events += 1
        assert events < 400
    assert set(world.finished) == set(RUNS)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), bounds=limits)
def test_only_an_accepted_output_is_a_success(data: st.DataObject, bounds: Limits) -> None:
    """Of a run that was not handed over."""
    world = World(data, bounds)
    accepted = False
    world.tell(TaskGiven(Job(RUNS[0], "x"), 0))
    while world.state.control.active is not None:
        event = world.fitting()
        accepted = accepted or isinstance(event, OutputAccepted)
        handed = isinstance(event, RunReturned)
        world.tell(event)
        if handed and event.result.status is RunStatus.SUCCEEDED:
            return
    assert (world.results[RUNS[0]].status is RunStatus.SUCCEEDED) == accepted


@settings(max_examples=40, deadline=None)
@given(data=st.data(), bounds=limits)
def test_what_a_failed_run_did_is_undone_in_reverse(data: st.DataObject, bounds: Limits) -> None:
    world = World(data, bounds)
    world.tell(TaskGiven(Job(RUNS[0], "x"), 0))
    while world.state.control.active is not None:
        world.tell(world.fitting())
    failed = world.results[RUNS[0]].status is not RunStatus.SUCCEEDED
    assert world.undone == (world.undo_wanted[::-1] if failed else [])
