"""What follows for a run when something that it goes on with was set aside: pure, as the loop is."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ValidationError

from stagebell.agents.events import Event, RunNotTaken, RunReturned, StepSetAside
from stagebell.agents.messages import CancelRun, ContinueRun, RunEnded, RunOverdue, StartRun
from stagebell.agents.state import LoopState
from stagebell.messages.conversation import RunResult, RunStatus, TerminationReason
from stagebell.messages.set_aside import SetAside
from stagebell.tools.approval_messages import ApprovalDecision

_KNOWN: Final[dict[str, type[BaseModel]]] = {
    f"stagebell.{each.__name__}": each
    for each in (StartRun, ContinueRun, RunEnded, RunOverdue, CancelRun, ApprovalDecision)
}
_TAKES_NONE: Final = ("CantHandle", "UnregisteredType")


def what_follows(word: SetAside, state: LoopState, at: int, *, fatal: bool, told: bool) -> Event | None:
    """The event that it is; None when no run goes on for which it means anything.

    Args:
        word: what was set aside.
        state: of the conversation.
        at: now, in milliseconds since the epoch.
        fatal: a run ends when an agent that it asks takes no tasks.
        told: another message is under way by which the run goes on from this state.
    """
    run, message = state.control.active, _read(word)
    if run is None or message is None:
        return None
    match message:
        case StartRun(parent=parent) if parent is not None and parent.run_id == run.run_id:
            return _not_started(word, message, parent.call_id, at, fatal=fatal)
        case ContinueRun(sequence=sequence) if sequence == state.control.sequence or not told:
            return StepSetAside(run.run_id, at, word.reason)
        case RunEnded() | RunOverdue() | CancelRun() | ApprovalDecision() if message.run_id == run.run_id:
            return StepSetAside(run.run_id, at, word.reason)
        case _:
            return None


def _not_started(word: SetAside, start: StartRun, call_id: str, at: int, *, fatal: bool) -> Event:
    if word.error in _TAKES_NONE:
        why = (
            f"agent {word.agent} takes no tasks, it is no ModelAgent ({word.error}): register a ModelAgent under the "
            f"type {word.agent.partition('/')[0]!r}, or make a tool of a function that calls the agent"
        )
        return RunNotTaken(call_id, why, at, fatal)
    reason, status = TerminationReason.SET_ASIDE, RunStatus.FAILED
    result = RunResult(run_id=start.run_id, status=status, reason=reason, text=word.reason, steps=0)
    return RunReturned(call_id, result, at)


def _read(word: SetAside) -> BaseModel | None:
    cls = _KNOWN.get(word.type)
    try:
        return None if cls is None else cls.model_validate(word.data)
    except ValidationError:
        return None
