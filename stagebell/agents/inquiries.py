"""What can be asked of a conversation about its runs: pure, as the loop is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagebell.agents.messages import RunEvents, RunSnapshot, Task
from stagebell.agents.state import Job, LoopState, Parent, Reader
from stagebell.errors import UnknownRun
from stagebell.messages.conversation import Finished, RunResult, RunStatus


def job_of(
    task: Task,
    run_id: str,
    content: str,
    *,
    deadline: int | None,
    parent: Parent | None = None,
    path: Sequence[str] = (),
    reply: str | None = None,
    tokens_to: str = "",
) -> Job:
    """The job that a task is, with its content as it was let in."""
    return Job(
        run_id,
        content,
        task.source,
        task.deps_key,
        task.business,
        task.limits,
        deadline,
        tuple(path),
        parent,
        () if reply is None else (reply,),
        "paused" if task.paused else "go",
        tokens_to,
    )


def status_of(state: LoopState, run_id: str) -> RunStatus:
    """How a run stands; a task that waits in line is waiting.

    Raises:
        UnknownRun: there is none of this id.
    """
    control = state.control
    if control.run is not None and control.run.run_id == run_id:
        return control.run.status
    if any(job.run_id == run_id for job in control.queue):
        return RunStatus.WAITING
    return _finished(state, run_id).status


def result_of(state: LoopState, run_id: str) -> RunResult | None:
    """The result of a run; None when it has none yet.

    Raises:
        UnknownRun: there is none of this id.
    """
    run = state.control.run
    if run is not None and run.run_id == run_id and run.result is not None:
        return run.result
    if status_of(state, run_id) in (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.PAUSED):
        return None
    ended = _finished(state, run_id)
    return RunResult(
        run_id=run_id,
        status=ended.status,
        reason=ended.reason,
        output=ended.output,
        text=ended.text,
        steps=ended.step,
        usage=ended.usage,
        last_tool=ended.last_tool,
    )


def what_happened(state: LoopState, run_id: str, offset: int) -> RunEvents:
    """What happened in a run, in the conversation's entries from `offset` on.

    Raises:
        UnknownRun: there is no run of this id.
    """
    ended = status_of(state, run_id) in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)
    later = enumerate(state.conversation[offset:], offset)
    found = [(entry, position) for position, entry in later if entry.run_id == run_id]
    return RunEvents(
        entries=tuple(entry for entry, _ in found),
        positions=tuple(position for _, position in found),
        offset=len(state.conversation),
        ended=ended,
    )


def snapshot(state: LoopState, run_id: str, dumped: dict[str, Any]) -> RunSnapshot:
    """How a run stands, with the state of its conversation as JSON data."""
    return RunSnapshot(run_id=run_id, status=status_of(state, run_id), state=dumped)


def with_reply(state: LoopState, run_id: str, reply: str) -> LoopState:
    """The state in which one more caller waits for the result of a run that has none yet."""
    control = state.control
    if control.run is not None and control.run.run_id == run_id:
        job = control.run.job.but(reply=(*control.run.job.reply, reply))
        return state.but(control=control.but(run=control.run.but(job=job)))
    queue = tuple(job.but(reply=(*job.reply, reply)) if job.run_id == run_id else job for job in control.queue)
    return state.but(control=control.but(queue=queue))


def with_reader(state: LoopState, run_id: str, offset: int, reply: str) -> LoopState:
    """The state in which one more caller waits to be told what happens in a run."""
    return with_readers(state, (*state.control.readers, Reader(run_id, offset, reply)))


def with_readers(state: LoopState, readers: tuple[Reader, ...]) -> LoopState:
    """The state in which these wait."""
    return state.but(control=state.control.but(readers=readers))


def with_told(state: LoopState, told: int | None) -> LoopState:
    """The state in which the agent told itself to go on after this change; None: it did not."""
    return state if state.control.told == told else state.but(control=state.control.but(told=told))


def adopted(state: LoopState, new: LoopState) -> LoopState:
    """A state that takes the place of another; who waited for the same run waits on."""
    run, former = new.control.run, state.control.active
    if run is None or former is None or run.run_id != former.run_id:
        return new
    run = run.but(job=run.job.but(reply=former.job.reply))
    sequence = max(new.control.sequence, state.control.sequence) + 1
    return new.but(control=new.control.but(run=run, sequence=sequence, readers=state.control.readers))


def _finished(state: LoopState, run_id: str) -> Finished:
    for entry in reversed(state.conversation):
        if entry.run_id == run_id and isinstance(entry, Finished):
            return entry
    raise UnknownRun(run_id)
