"""How a run begins and ends: the history is repaired, what it did is undone, the next task in line begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from stagebell.agents.events import Begin, CancelBelow, Finish, Withdraw
from stagebell.agents.limits import Limits
from stagebell.agents.moves import Move
from stagebell.agents.state import Ending, Job, Run
from stagebell.messages.conversation import (
    Asked,
    Finished,
    Noted,
    Returned,
    RunResult,
    RunStatus,
    TerminationReason,
)
from stagebell.messages.tool_calls import ErrorCode, ToolResult

_NOT_MADE: Final = "the call was not made: the run ended before"
_CUT_OFF: Final = "the run ended while the call was being made: whether it took effect is not known"


def begin_next(move: Move) -> None:
    """Let the next task in line begin, when no run goes on."""
    while move.run is None and move.queue:
        job, *others = move.queue
        move.queue = tuple(others)
        begin(move, job)


def begin(move: Move, job: Job) -> None:
    """Let the run of a task begin."""
    limits = move.limits.within(job.limits)
    run = Run(job, limits, _deadline(job, limits, move.at), hold=job.hold)
    move.run = run
    move.add(Asked(**move.stamp(), source=job.source, content=job.content))
    if job.business is not None:
        move.change_business({**(move.business if isinstance(move.business, dict) else {}), **job.business})
    move.act(Begin(run))
    if run.deadline is not None and move.at >= run.deadline:
        end(move, RunStatus.FAILED, TerminationReason.TIMEOUT, "its deadline was over before it began")


def end(
    move: Move,
    status: RunStatus,
    reason: TerminationReason,
    text: str = "",
    output: JsonValue = None,
) -> None:
    """Let the run that goes on end: at once, or when what it did is undone."""
    run = move.run
    assert run is not None
    if run.ending is not None:
        return
    _repair(move, run)
    run = run.but(pending=(), waiting_for=())
    if status is not RunStatus.SUCCEEDED and run.undo:
        move.run = run.but(ending=Ending(status, reason, text))
        return
    move.run = run
    _conclude(move, status, reason, text, output)


def undone(move: Move, call_id: str, error: str) -> None:
    """A call was taken back, or that failed; after the last one the run ends."""
    run = move.run
    if run is None or run.ending is None or run.undo[-1].call.id != call_id:
        return
    what = "undo_failed" if error else "undone"
    data: JsonValue = {"call_id": call_id, "tool": run.undo[-1].call.name, **({"error": error} if error else {})}
    move.add(Noted(**move.stamp(), what=what, data=data))
    ending = run.ending
    if error:
        failed = f"{run.undo[-1].call.name} (call {call_id}) could not be undone: {error}"
        ending = replace(ending, text=f"{ending.text}; {failed}" if ending.text else failed)
    move.run = run.but(undo=run.undo[:-1], ending=ending)
    if not move.run.undo:
        move.run = move.run.but(ending=None)
        _conclude(move, ending.status, ending.reason, ending.text, None)


def finish(move: Move, job: Job, status: RunStatus, reason: TerminationReason, text: str) -> None:
    """End the run of a task that never began."""
    task: JsonValue = {"source": job.source, "content": job.content}
    move.add(Noted(run_id=job.run_id, step=0, at=move.at, what="task", data=task))  # no model is to see it
    move.add(Finished(run_id=job.run_id, step=0, at=move.at, status=status, reason=reason, text=text))
    result = RunResult(run_id=job.run_id, status=status, reason=reason, text=text, steps=0)
    move.act(Finish(job, result, timed=job.deadline is not None))


def _repair(move: Move, run: Run) -> None:
    """Give each call that has no result one, and let nobody work on for a run that is over."""
    waiting = {each.call_id: each for each in run.waiting_for}
    for each in run.pending:
        wait = waiting.get(each.call.id)
        if wait is not None:
            move.act(
                CancelBelow(wait.payload) if wait.kind == "run" else Withdraw(wait.call_id, wait.kind, wait.payload)
            )
        code, text = (ErrorCode.OUTCOME_UNKNOWN, _CUT_OFF) if each.unsure else (ErrorCode.CANCELLED, _NOT_MADE)
        move.add(Returned(**move.stamp(), result=ToolResult.error(each.call, code, text, int(each.unsure))))


def _conclude(move: Move, status: RunStatus, reason: TerminationReason, text: str, output: JsonValue) -> None:
    run = move.run
    assert run is not None
    result = RunResult(
        run_id=run.run_id,
        status=status,
        reason=reason,
        output=output,
        text=text,
        steps=run.steps,
        usage=run.usage,
        last_tool=run.last_tool,
    )
    entry = Finished(
        run_id=run.run_id,
        step=run.steps,
        at=move.at,
        status=status,
        reason=reason,
        output=output,
        text=text,
        usage=run.usage,
        last_tool=run.last_tool,
    )
    move.add(entry)
    move.act(Finish(run.job, result, timed=run.deadline is not None))
    move.ended, move.run = run.but(job=run.job.but(reply=()), undo=(), result=result), None


def _deadline(job: Job, limits: Limits, at: int) -> int | None:
    own = None if limits.timeout is None else at + round(limits.timeout * 1000)
    if own is None or job.deadline is None:
        return job.deadline if own is None else own
    return min(own, job.deadline)
