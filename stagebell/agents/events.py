"""What the loop is told, and what it asks for. `at` is when, in milliseconds since the epoch.

What every step makes is a tuple, which is made in a third of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from pydantic import JsonValue

from stagebell.agents.state import Hold, Job, LoopState, Pending, Run, Undo, WaitKind
from stagebell.messages.conversation import RunResult, Usage
from stagebell.messages.tool_calls import AnyDecision, ToolResult

UNCHANGED: Final[JsonValue] = "\0unchanged"
"""In the place of the business section: it stays as it is."""


@dataclass(frozen=True, slots=True)
class TaskGiven:
    """There is a task; with `refused`, one that a guardrail does not let in, and why."""

    job: Job
    at: int
    refused: str = ""


class ModelDecided(NamedTuple):
    """The model wants tools, another agent, or a person; `calls` is the plan for that, in order."""

    decision: AnyDecision
    calls: tuple[Pending, ...]
    usage: Usage
    at: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class OutputAccepted:
    """The model gave its final output, which was found valid."""

    output: JsonValue
    usage: Usage
    at: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class AnswerRejected:
    """The model gave an answer that cannot be used; with `final`, no further one is wanted."""

    answer: str
    error: str
    usage: Usage
    at: int
    model: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model gave no answer that can be used; with `final`, asking again is of no use. `usage` is what it took."""

    error: str
    at: int
    final: bool = False
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """A call has no result now: it waits for something that comes from elsewhere."""

    call_id: str
    kind: WaitKind
    payload: JsonValue = None


class CallsHandled(NamedTuple):
    """What came of a group of calls, in order; `fatal` is why the run cannot go on after them, if so."""

    outcomes: tuple[ToolResult | Waits, ...]
    at: int
    undoable: tuple[Undo, ...] = ()
    fatal: str = ""
    business: JsonValue = UNCHANGED


@dataclass(frozen=True, slots=True)
class CallApproved:
    """A call that waited for an approval was decided about; `decided` is what the tool's lifecycle goes on with."""

    call_id: str
    decided: JsonValue
    at: int


@dataclass(frozen=True, slots=True)
class PersonAnswered:
    """A person answered a question."""

    call_id: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class RunReturned:
    """A run below has ended; `refused` is why its output cannot be that of this run, after a hand-over."""

    call_id: str
    result: RunResult
    at: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class RunNotTaken:
    """The agent that was to make a run takes no tasks; with `fatal`, this run ends with that."""

    call_id: str
    why: str
    at: int
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Undone:
    """A call was taken back, or that failed."""

    call_id: str
    at: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody wants a run to end; unless `cut_off` is False, that may have cut off calls that were under way."""

    run_id: str
    at: int
    why: str = ""
    cut_off: bool = True


@dataclass(frozen=True, slots=True)
class Overdue:
    """The deadline of a run is over; `cut_off` as above."""

    run_id: str
    at: int
    cut_off: bool = True


@dataclass(frozen=True, slots=True)
class StepSetAside:
    """What a run goes on with was set aside, and will not be tried again."""

    run_id: str
    at: int
    why: str


@dataclass(frozen=True, slots=True)
class HoldAsked:
    """A run is to stand still ("paused"), to do one thing ("once"), or to go on ("go")."""

    run_id: str
    hold: Hold
    at: int


Event: TypeAlias = (
    TaskGiven
    | ModelDecided
    | OutputAccepted
    | AnswerRejected
    | ModelFailed
    | CallsHandled
    | CallApproved
    | PersonAnswered
    | RunReturned
    | RunNotTaken
    | Undone
    | CancelAsked
    | Overdue
    | StepSetAside
    | HoldAsked
)


class RequestModel(NamedTuple):
    """Ask the model; `retries` requests have failed just before."""

    retries: int = 0


class RunCalls(NamedTuple):
    """Run these calls, which may overlap."""

    calls: tuple[Pending, ...]


@dataclass(frozen=True, slots=True)
class Compensate:
    """Take a call back."""

    undo: Undo


@dataclass(frozen=True, slots=True)
class Begin:
    """A run begins: set the timer of its deadline, if it has one."""

    run: Run


@dataclass(frozen=True, slots=True)
class Finish:
    """A run has its result: tell those who wait for it; `timed`: there is a timer of its deadline."""

    job: Job
    result: RunResult
    timed: bool = False


@dataclass(frozen=True, slots=True)
class CancelBelow:
    """A run that this one started is not wanted any more; `payload` is that of the wait for it."""

    payload: JsonValue


@dataclass(frozen=True, slots=True)
class Withdraw:
    """What a run waited for is not wanted any more: an approval, or an answer."""

    call_id: str
    kind: WaitKind
    payload: JsonValue


Due: TypeAlias = RequestModel | RunCalls | Compensate
Effect: TypeAlias = Begin | Finish | CancelBelow | Withdraw
Action: TypeAlias = Due | Effect


class Step(NamedTuple):
    """The state after an event, and what is to be done: effects at once, then at most one thing that takes time."""

    state: LoopState
    effects: tuple[Effect, ...] = ()
    due: Due | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """All of them, in order."""
        return self.effects if self.due is None else (*self.effects, self.due)
