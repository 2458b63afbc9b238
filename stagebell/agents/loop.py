"""The loop of a run, as a state machine: no clock, no model, no tool, nothing to await.

                       ┌───────────── rejected, failed: again, so many times ─────────────┐
                       ▼                                                                  │
    task ─▶ (in line) ─▶ REQUEST MODEL ─── decided ──▶ RUN CALLS ──▶ next group … ────────┤ all have results
                       │      ▲                          │    ▲                           │
                       │      └──────────────────────────┼────┼───────────────────────────┘
                       │                                 ▼    │
                       │                              WAITING: approval · answer of a person · end of a run below
                       │ accepted output                 │
                       │ or a bound, a cancel, an error  │ cancel, deadline
                       ▼                                 ▼
                     (UNDO what has to be undone, the last one first) ──▶ FINISHED ──▶ the next task in line

`next_step` gives the state after an event and what is to be done; `due` says what is to be done in a state, so that
whoever finds a state after a crash goes on as if nothing had been. What holds at all times

    - `0 <= step <= max_steps`. A bound that is reached ends the run before anything else is begun.
    - Each call of a decision gets exactly one result, also when the run ends before it was made.
    - The model is asked only when every call has its result, so every result is in the next request.
    - A run succeeds only by an output that was accepted, and its result never changes again.
    - An event that does not fit the state (it came twice, or too late) changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from stagebell.agents.endings import begin_next, end, finish, undone
from stagebell.agents.events import (
    AnswerRejected,
    CallApproved,
    CallsHandled,
    CancelAsked,
    Compensate,
    Due,
    Event,
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
    Step,
    StepSetAside,
    TaskGiven,
    Undone,
    Waits,
)
from stagebell.agents.limits import Limits
from stagebell.agents.moves import Move
from stagebell.agents.repeats import after_round
from stagebell.agents.state import LoopState, Run, Waiting
from stagebell.messages.conversation import (
    Corrected,
    Decided,
    Noted,
    Returned,
    RunResult,
    RunStatus,
    TerminationReason,
    Usage,
)
from stagebell.messages.tool_calls import ErrorCode, FinalOutput, ToolCall, ToolResult
from stagebell.messages.trusted import trusted

FAILED: Final = RunStatus.FAILED
_HELD: Final = {"go": "resumed", "once": "stepped", "paused": "paused"}


def next_step(state: LoopState, event: Event, limits: Limits) -> Step:
    """The state after an event, and what is to be done.

    Args:
        state: the state before.
        event: what happened.
        limits: those of the agent; a run keeps those it began with.
    """
    move = Move(state, event.at, limits)
    _HANDLERS[type(event)](move, event)
    begin_next(move)
    if not move.changed:
        return Step(state)
    state = move.state()
    return Step(state, tuple(move.effects), due(state))


def due(state: LoopState) -> Due | None:
    """What is to be done now; None while there is nothing to do, or something has to come from elsewhere."""
    run = state.control.active
    if run is None:
        return None
    if run.ending is not None:
        return Compensate(run.undo[-1])
    if run.hold == "paused":
        return None
    if ready := run.ready():
        return RunCalls(ready)
    return None if run.pending else RequestModel(run.retries)


# -- a task comes, and the model answers


def _task(move: Move, event: TaskGiven) -> None:
    job = event.job
    if move.knows(job.run_id):
        return
    if event.refused:
        finish(move, job, RunStatus.FAILED, TerminationReason.REFUSED, event.refused)
        return
    move.queue = (*move.queue, job)  # and it begins at once, when no run goes on


def _decided(move: Move, event: ModelDecided) -> None:
    run = move.asked()
    if run is None:
        return
    move.run = _counted(move, run, event.usage, pending=event.calls, last_tool=event.calls[-1].call.name)
    move.add(trusted(Decided, **move.stamp(), decision=event.decision, usage=event.usage, model=event.model))
    if any(each.kind in ("run", "handoff") for each in event.calls) and run.limits.max_hops < 1:
        path = " → ".join((*run.job.path, *(each.to for each in event.calls if each.to)))
        end(move, FAILED, TerminationReason.HOP_LIMIT, f"the task was handed on too often: {path}")
    else:
        _end_when_used_up(move)


def _accepted(move: Move, event: OutputAccepted) -> None:
    run = move.asked()
    if run is None:
        return
    move.run = _counted(move, run, event.usage)
    decision = FinalOutput(output=event.output)
    move.add(Decided(**move.stamp(), decision=decision, usage=event.usage, model=event.model))
    end(move, RunStatus.SUCCEEDED, TerminationReason.FINAL_OUTPUT, output=event.output)


def _rejected(move: Move, event: AnswerRejected) -> None:
    run = move.asked()
    if run is None:
        return
    move.run = _counted(move, run, event.usage, rejected=run.rejected + 1)
    entry = Corrected(**move.stamp(), answer=event.answer, error=event.error, usage=event.usage, model=event.model)
    move.add(entry)
    if event.final:
        end(move, FAILED, TerminationReason.REFUSED, event.error)
    elif run.rejected >= run.limits.output_retries:
        end(move, FAILED, TerminationReason.OUTPUT_INVALID, f"the output was not valid: {event.error}")
    else:
        _end_when_used_up(move)


def _model_failed(move: Move, event: ModelFailed) -> None:
    run = move.asked()
    if run is None:
        return
    move.add(Noted(**move.stamp(), what="model_failed", data=event.error))
    usage = run.usage if event.usage is None else run.usage + event.usage
    move.run = run.but(retries=run.retries + 1, usage=usage, hold=move.hold_after(run))
    if event.final or run.retries >= run.limits.model_retries:
        end(move, FAILED, TerminationReason.MODEL_ERROR, f"the model gave no answer: {event.error}")
    else:
        _end_when_overdue(move)


# -- calls are made


def _handled(move: Move, event: CallsHandled) -> None:
    run = move.open()
    ready = [each.call.id for each in run.ready()] if run is not None else []
    outcomes = [each for each in event.outcomes if each.call_id in ready]
    if run is None or not outcomes:
        return
    move.change_business(event.business)
    waiting = [Waiting(each.call_id, each.kind, each.payload, move.at) for each in outcomes if isinstance(each, Waits)]
    for each in waiting:
        move.add(Noted(**move.stamp(), what=f"waits_for_{each.kind}", data={"call_id": each.call_id}))
    results = [each for each in outcomes if isinstance(each, ToolResult)]
    waiting_for = (*run.waiting_for, *waiting)
    _take_results(move, results, undo=(*run.undo, *event.undoable), waiting_for=waiting_for, hold=move.hold_after(run))
    if event.fatal:
        end(move, FAILED, TerminationReason.FATAL_TOOL_ERROR, event.fatal)
    else:
        _after_results(move)


def _approved(move: Move, event: CallApproved) -> None:
    run = move.open()
    if run is None or not _waits(run, event.call_id, "approval"):
        return
    pending = tuple(
        replace(each, decided=event.decided) if each.call.id == event.call_id else each for each in run.pending
    )
    move.run = run.but(pending=pending, waiting_for=_without(run, event.call_id))
    move.add(Noted(**move.stamp(), what="approval", data={"call_id": event.call_id, "decided": event.decided}))
    _end_when_overdue(move)


def _answered(move: Move, event: PersonAnswered) -> None:
    run = move.open()
    if run is None or not _waits(run, event.call_id, "question"):
        return
    move.run = run.but(waiting_for=_without(run, event.call_id))
    call = _call(run, event.call_id)
    _take_results(move, [ToolResult(call_id=call.id, tool_name=call.name, value=event.text)])
    _after_results(move)


def _returned(move: Move, event: RunReturned) -> None:
    run = move.open()
    if run is None or not _waits(run, event.call_id, "run"):
        return
    below = event.result
    move.run = run.but(
        waiting_for=_without(run, event.call_id),
        usage=run.usage + below.usage,
        steps_below=run.steps_below + below.steps,
    )
    pending = next(each for each in run.pending if each.call.id == event.call_id)
    _take_results(move, [_result_of_run(pending.call, below)])
    if pending.kind != "handoff":
        _after_results(move)
    elif below.status is RunStatus.SUCCEEDED and not event.refused:
        end(move, RunStatus.SUCCEEDED, TerminationReason.FINAL_OUTPUT, output=below.output)
    elif below.status is RunStatus.SUCCEEDED:
        end(move, FAILED, TerminationReason.OUTPUT_INVALID, f"the output was not valid: {event.refused}")
    else:
        end(move, below.status, below.reason, below.text)


def _not_taken(move: Move, event: RunNotTaken) -> None:
    run = move.open()
    if run is None or not _waits(run, event.call_id, "run"):
        return
    call = _call(run, event.call_id)
    move.run = run.but(waiting_for=_without(run, event.call_id))
    _take_results(move, [ToolResult.error(call, ErrorCode.FATAL, event.why)])
    if event.fatal:
        end(move, FAILED, TerminationReason.FATAL_TOOL_ERROR, f"{call.name} ({ErrorCode.FATAL}): {event.why}")
    else:
        _after_results(move)


def _undone(move: Move, event: Undone) -> None:
    undone(move, event.call_id, event.error)


# -- somebody interferes


def _cancel(move: Move, event: CancelAsked) -> None:
    text = f"it was cancelled{f': {event.why}' if event.why else ''}"
    if event.cut_off:
        move.interrupted()
    _end_early(move, event.run_id, RunStatus.CANCELLED, TerminationReason.CANCELLED, text)


def _overdue(move: Move, event: Overdue) -> None:
    if event.cut_off:
        move.interrupted()
    _end_early(move, event.run_id, FAILED, TerminationReason.TIMEOUT, "it was not done by its deadline")


def _set_aside(move: Move, event: StepSetAside) -> None:
    run = move.run
    if run is None or run.run_id != event.run_id:
        return
    if run.ending is not None:
        undone(move, run.undo[-1].call.id, event.why)
    else:
        move.interrupted()
        end(move, FAILED, TerminationReason.SET_ASIDE, f"a step of it was set aside: {event.why}")


def _hold(move: Move, event: HoldAsked) -> None:
    run = move.open()
    if run is not None and run.run_id == event.run_id:
        move.run = run.but(hold=event.hold)
        move.add(Noted(**move.stamp(), what=_HELD[event.hold]))
    elif any(job.run_id == event.run_id for job in move.queue):
        move.queue = tuple(job.but(hold=event.hold) if job.run_id == event.run_id else job for job in move.queue)


# -- small parts


def _counted(move: Move, run: Run, usage: Usage, **changes: Any) -> Run:
    return run.but(step=run.step + 1, retries=0, usage=run.usage + usage, hold=move.hold_after(run), **changes)


def _end_when_used_up(move: Move) -> None:
    """End the run when a bound is reached, so that nothing is begun whose result no model would see."""
    run = move.run
    assert run is not None
    limits = run.limits
    if limits.max_steps is not None and run.steps >= limits.max_steps:
        text = f"the task is unfinished: no step is left of {limits.max_steps}"
        end(move, FAILED, TerminationReason.MAX_STEPS, text)
    elif limits.max_tokens is not None and run.usage.tokens >= limits.max_tokens:
        text = f"the task is unfinished: {run.usage.tokens} tokens were used, the budget is {limits.max_tokens}"
        end(move, FAILED, TerminationReason.BUDGET, text)
    elif limits.max_cost is not None and run.usage.cost >= limits.max_cost:
        text = f"the task is unfinished: it has cost {run.usage.cost:.6g}, the budget is {limits.max_cost:.6g}"
        end(move, FAILED, TerminationReason.BUDGET, text)
    else:
        _end_when_overdue(move)


def _end_when_overdue(move: Move) -> None:
    run = move.run
    if run is not None and run.deadline is not None and move.at >= run.deadline:
        end(move, FAILED, TerminationReason.TIMEOUT, "the task is unfinished: it was not done by its deadline")


def _take_results(move: Move, results: list[ToolResult], **changes: Any) -> None:
    run = move.run
    assert run is not None
    for result in results:
        move.add(trusted(Returned, **move.stamp(), result=result))
    have = [result.call_id for result in results]
    move.run = run.but(pending=tuple([each for each in run.pending if each.call.id not in have]), **changes)


def _after_results(move: Move) -> None:
    """Go on with the next group; after the last one, see whether the round was the same as those before."""
    run = move.run
    assert run is not None
    if run.pending:
        _end_when_overdue(move)
        return
    if run.limits.repeated_calls is not None:
        rounds, repeated = after_round(run, run.limits.repeated_calls, move.latest_round())
        move.run = run.but(rounds=rounds)
        if repeated is not None:
            end(move, FAILED, TerminationReason.REPEATED_CALL, repeated)
            return
    _end_when_used_up(move)


def _end_early(move: Move, run_id: str, status: RunStatus, reason: TerminationReason, text: str) -> None:
    run = move.open()
    if run is not None and run.run_id == run_id:
        end(move, status, reason, text)
        return
    job = next((each for each in move.queue if each.run_id == run_id), None)
    if job is not None:
        move.queue = tuple(each for each in move.queue if each is not job)
        finish(move, job, status, reason, text)


def _result_of_run(call: ToolCall, below: RunResult) -> ToolResult:
    if below.status is RunStatus.SUCCEEDED:
        return ToolResult(call_id=call.id, tool_name=call.name, value=below.output)
    text = f"the agent did not finish the task ({below.reason}): {below.text}"
    return ToolResult.error(call, ErrorCode.BUSINESS, text, attempts=1)


def _waits(run: Run, call_id: str, kind: str) -> bool:
    return any(each.call_id == call_id and each.kind == kind for each in run.waiting_for)


def _without(run: Run, call_id: str) -> tuple[Waiting, ...]:
    return tuple(each for each in run.waiting_for if each.call_id != call_id)


def _call(run: Run, call_id: str) -> ToolCall:
    return next(each.call for each in run.pending if each.call.id == call_id)


_HANDLERS: Final[dict[type[Any], Callable[[Move, Any], None]]] = {
    TaskGiven: _task,
    ModelDecided: _decided,
    OutputAccepted: _accepted,
    AnswerRejected: _rejected,
    ModelFailed: _model_failed,
    CallsHandled: _handled,
    CallApproved: _approved,
    PersonAnswered: _answered,
    RunReturned: _returned,
    RunNotTaken: _not_taken,
    Undone: _undone,
    CancelAsked: _cancel,
    Overdue: _overdue,
    StepSetAside: _set_aside,
    HoldAsked: _hold,
}
