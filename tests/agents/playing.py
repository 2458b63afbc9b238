"""Events for the loop, and their play: a run of tests is a list of them."""

from __future__ import annotations

from typing import Any

from stagebell.agents.events import (
    CallsHandled,
    Event,
    Finish,
    ModelDecided,
    OutputAccepted,
    Step,
    TaskGiven,
    Waits,
)
from stagebell.agents.limits import Limits
from stagebell.agents.loop import next_step
from stagebell.agents.state import Job, LoopState, Pending, Undo
from stagebell.messages.conversation import RunResult, RunStatus, TerminationReason, Usage
from stagebell.messages.tool_calls import ErrorCode, HandOff, ToolCall, ToolResult, UseTools

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


def handed(*events: Event) -> Step:
    """A run that was handed over, and what came then."""
    call = ToolCall(id="b", name="to_b")
    decision = ModelDecided(
        HandOff(to="b", message="yours", call=call), (Pending(call, kind="handoff", to="b"),), USED, 2
    )
    return play(decision, CallsHandled((Waits("b", "run", {}),), 3), *events)


def undo(id: str) -> Undo:
    return Undo(ToolCall(id=id, name=id), ToolResult(call_id=id, tool_name=id, value="ok"))
