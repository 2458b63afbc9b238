"""Another run that begins where a run stood after one of its steps; pure. The original stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from stagebell.agents.limits import Limits
from stagebell.agents.state import Control, Job, LoopState, Run
from stagebell.errors import UnknownRun
from stagebell.messages.conversation import AnyEntry, Asked, Corrected, Decided, Finished, Noted, Returned, Usage
from stagebell.messages.tool_calls import Ask, FinalOutput, HandOff, UseTools


def fork_state(state: LoopState, run_id: str, step: int, new_id: str) -> LoopState:
    """The state of a new conversation, whose latest run stands where a run stood after one of its steps.

    Args:
        state: of the conversation of the run.
        run_id: of the run.
        step: after how many answers of its model; 0 is its beginning.
        new_id: of the new run.

    Raises:
        UnknownRun: there is no such run in the conversation.
        ValueError: the step is below 0; the run did not come so far, gave its output in that step, or calls of it have
            no result.
    """
    if step < 0:
        raise ValueError(f"a run is forked after one of its steps, or at its beginning, which is 0; not after {step}")
    entries = _upto(state.conversation, run_id, step)
    own = [entry for entry in entries if entry.run_id == run_id]
    _check(own, step)
    renamed = tuple(
        entry.model_copy(update={"run_id": new_id}) if entry.run_id == run_id else entry for entry in entries
    )
    usage = sum((entry.usage for entry in own if isinstance(entry, Decided | Corrected)), Usage())
    run = Run(
        _job(state, own, run_id, new_id),
        Limits(),
        step=step,
        rejected=sum(isinstance(entry, Corrected) for entry in own),
        usage=usage,
        last_tool=_last_tool(own),
    )
    return LoopState(renamed, Control(run), _business(entries))


def bounded(state: LoopState, limits: Limits, now_ms: int) -> LoopState:
    """A forked state with the bounds that its agent sets."""
    run = state.control.active
    if run is None:
        return state
    limits = limits.within(run.job.limits)
    deadline = None if limits.timeout is None else now_ms + round(limits.timeout * 1000)
    return state.but(control=state.control.but(run=run.but(limits=limits, deadline=deadline)))


def _upto(entries: Sequence[AnyEntry], run_id: str, step: int) -> list[AnyEntry]:
    """What was there when the run had made so many steps: what came before, and its own until then."""
    kept: list[AnyEntry] = []
    begun = False
    for entry in entries:
        if entry.run_id == run_id:
            begun = True
            if entry.step <= step and not isinstance(entry, Finished):
                kept.append(entry)
        elif not begun:
            kept.append(entry)
    if not begun:
        raise UnknownRun(run_id)
    return kept


def _check(own: Sequence[AnyEntry], step: int) -> None:
    if max((entry.step for entry in own), default=0) < step:
        raise ValueError(f"the run has not made {step} steps yet")
    open_calls: set[str] = set()
    for entry in own:
        if isinstance(entry, Returned):
            open_calls.discard(entry.result.call_id)
        elif isinstance(entry, Decided):
            if isinstance(entry.decision, FinalOutput):
                raise ValueError(f"the run ended with step {step}: fork it from an earlier one")
            open_calls |= _calls(entry)
    if open_calls:
        raise ValueError(f"calls of step {step} have no result yet: {', '.join(sorted(open_calls))}")


def _calls(entry: Decided) -> set[str]:
    match entry.decision:
        case UseTools(calls=calls):
            return {call.id for call in calls}
        case HandOff(call=call) | Ask(call=call) if call is not None:
            return {call.id}
        case _:
            return set()


def _job(state: LoopState, own: Sequence[AnyEntry], run_id: str, new_id: str) -> Job:
    run = state.control.run
    if run is not None and run.run_id == run_id:
        return replace(
            run.job, run_id=new_id, deadline=None, parent=None, reply=(), business=None, hold="go", tokens_to=""
        )
    asked = next(entry for entry in own if isinstance(entry, Asked))
    return Job(new_id, asked.content, asked.source)


def _last_tool(own: Sequence[AnyEntry]) -> str | None:
    return next((entry.result.tool_name for entry in reversed(own) if isinstance(entry, Returned)), None)


def _business(entries: Sequence[AnyEntry]) -> JsonValue:
    notes = (entry for entry in reversed(entries) if isinstance(entry, Noted) and entry.what == "business")
    return next((note.data for note in notes), None)
