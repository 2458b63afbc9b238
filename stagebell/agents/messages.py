"""What travels to and from an agent that runs tasks. `Task` is for everybody; the others are the words of `Runs`.

Task ──────────────▶ RunResult                 a call, answered when the run has ended
StartRun ──────────▶ RunAccepted               at once; then, as often as wanted:
  AwaitRun ────────▶ RunResult                 when it has ended
  ReadRun ─────────▶ RunEvents                 when something has happened
  InspectRun ──────▶ RunSnapshot               between two steps
  HoldRun, CancelRun, AnswerQuestion, AdoptRun ──▶ RunAccepted
ContinueRun, RunOverdue                        an agent to itself
PieceWritten                                   to who reads a run's answers while they are written
RunEnded                                       to the agent whose run started this one
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from stagebell.agents.limits import Limits
from stagebell.agents.state import Hold, Parent
from stagebell.agents.writable import writable, writable_value
from stagebell.messages.conversation import Entry, RunResult, RunStatus

_CLOSED: Final = ConfigDict(frozen=True, extra="forbid")

# What a person or a program says, as UTF-8 can write it.
_Text = Annotated[str, AfterValidator(writable)]
_Data = Annotated[dict[str, Any], AfterValidator(writable_value)]


class Task(BaseModel):
    """What an agent is to do; the reply is a `RunResult`.

    Attributes:
        content: the task, in words.
        source: who gives it.
        deps_key: tells the agent's factory of dependencies for whom they are.
        business: facts that become part of the conversation's business section when the run begins.
        limits: bounds of this run that are narrower than those of the agent.
        paused: the run waits to be stepped by hand, or resumed.
    """

    model_config = _CLOSED

    content: _Text
    source: _Text = "user"
    deps_key: _Text = ""
    business: Annotated[dict[str, JsonValue], AfterValidator(writable_value)] | None = None
    limits: Limits | None = None
    paused: bool = False


class StartRun(BaseModel):
    """Let a task become a run of this id, unless there is one."""

    model_config = _CLOSED

    run_id: str
    task: Task
    deadline: int | None = None
    path: tuple[str, ...] = ()
    parent: Parent | None = None
    tokens_to: str = ""


class RunAccepted(BaseModel):
    """It was done; how the run stands then."""

    model_config = _CLOSED

    run_id: str
    status: RunStatus


class AwaitRun(BaseModel):
    """Answer with the result of a run, when it has one."""

    model_config = _CLOSED

    run_id: str


class ReadRun(BaseModel):
    """Answer with what happened in a run, in the conversation's entries from `offset` on, as soon as there is any."""

    model_config = _CLOSED

    run_id: str
    offset: int = Field(0, ge=0)


class RunEvents(BaseModel):
    """What happened in a run.

    Attributes:
        entries: what happened.
        positions: of each of them in the conversation.
        offset: where to read on.
        ended: the run has ended, and nothing more will come.
    """

    model_config = _CLOSED

    entries: tuple[Entry, ...]
    positions: tuple[int, ...]
    offset: int
    ended: bool


class InspectRun(BaseModel):
    """Answer with the state that a run is in."""

    model_config = _CLOSED

    run_id: str


class RunSnapshot(BaseModel):
    """How a run stands, with the state of its conversation: three sections, as JSON."""

    model_config = _CLOSED

    run_id: str
    status: RunStatus
    state: dict[str, Any]


class HoldRun(BaseModel):
    """Let a run stand still before its next step, do one step, or go on."""

    model_config = _CLOSED

    run_id: str
    hold: Hold


class CancelRun(BaseModel):
    """Let a run end, whatever it is doing."""

    model_config = _CLOSED

    run_id: str
    why: _Text = ""


class AnswerQuestion(BaseModel):
    """Answer a question that a run waits for."""

    model_config = _CLOSED

    run_id: str
    call_id: str
    text: _Text


class AdoptRun(BaseModel):
    """Go on from this state, of which the run is the latest; of a conversation of its own, or of a paused run."""

    model_config = _CLOSED

    run_id: str
    state: _Data
    replace: bool = False


class ContinueRun(BaseModel):
    """Do what is due, if nothing has changed since `sequence`."""

    model_config = _CLOSED

    sequence: int


class RunOverdue(BaseModel):
    """The deadline of a run is over."""

    model_config = _CLOSED

    run_id: str


class RunEnded(BaseModel):
    """A run that was started for a call of another run has ended."""

    model_config = _CLOSED

    run_id: str
    call_id: str
    result: RunResult


class TokenChunk(BaseModel):
    """A piece of an answer while the model is writing it; published to the topic of its run, at least once.

    Attributes:
        run_id: of which run.
        step: of which answer.
        index: its place in the answer.
        text: the piece.
        last: nothing more comes of this answer.
    """

    model_config = _CLOSED

    run_id: str
    step: int
    index: int
    text: str
    last: bool = False


class PieceWritten(BaseModel):
    """Told to whoever reads the answers of a run: a piece of one, or None when the run has ended."""

    model_config = _CLOSED

    reader: str
    run_id: str
    chunk: TokenChunk | None = None


class Question(BaseModel):
    """A run waits for a person to answer this, with `AnswerQuestion`."""

    model_config = _CLOSED

    run_id: str
    call_id: str
    question: str


REPLIES: Final = (RunResult, RunAccepted, RunEvents, RunSnapshot)
"""What a client of runs has to be able to read."""

REQUESTS: Final = (
    Task,
    StartRun,
    AwaitRun,
    ReadRun,
    InspectRun,
    HoldRun,
    CancelRun,
    AnswerQuestion,
    AdoptRun,
)
"""What it sends."""
