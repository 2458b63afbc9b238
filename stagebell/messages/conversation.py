"""What happened in a conversation, as a list of entries that only grows: it is the trajectory, and the model's history.

    asked ──▶ decided ──▶ returned (one for each call) ──▶ decided ──▶ … ──▶ finished ──▶ asked ──▶ …

Each entry says in which run and when it came about. What the model is sent is made of `Asked`, `Decided`, `Returned`
and `Corrected`; `Noted` and `Finished` tell the rest to people and programs that look on. An answer that was found
invalid is kept as the text that it was (`Corrected`), never as an output.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypeVar

from stagebell.messages.tool_calls import Decision, ToolResult
from stagebell.messages.trusted import trusted

_CLOSED: Final = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class RunStatus(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TerminationReason(StrEnum):
    """Why a run ended. Only a final output is a success."""

    FINAL_OUTPUT = "final_output"
    MAX_STEPS = "max_steps"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    REPEATED_CALL = "repeated_call"
    OUTPUT_INVALID = "output_invalid"
    FATAL_TOOL_ERROR = "fatal_tool_error"
    MODEL_ERROR = "model_error"
    REFUSED = "refused"
    HOP_LIMIT = "hop_limit"
    SET_ASIDE = "set_aside"


class Usage(BaseModel):
    """What requests to models took."""

    model_config = _CLOSED

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return trusted(
            Usage,
            requests=self.requests + other.requests,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost=self.cost + other.cost,
        )

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prompt_tokens + self.completion_tokens


class _Entry(BaseModel):
    model_config = _CLOSED

    run_id: str
    step: int = Field(ge=0)
    at: int = Field(ge=0, description="milliseconds since the epoch")


class Asked(_Entry):
    """The task of a run, or what somebody said to it while it went on."""

    kind: Literal["asked"] = "asked"
    source: str = "user"
    content: str


class Decided(_Entry):
    """An answer of the model, and what it means."""

    kind: Literal["decided"] = "decided"
    decision: Decision
    usage: Usage = Usage()
    model: str = ""


class Returned(_Entry):
    """What came of one call."""

    kind: Literal["returned"] = "returned"
    result: ToolResult


class Corrected(_Entry):
    """The model gave an answer that could not be used, and is told why."""

    kind: Literal["corrected"] = "corrected"
    answer: str = ""
    error: str
    usage: Usage = Usage()
    model: str = ""


class Noted(_Entry):
    """Something happened that the model is not told: an approval, a pause, a step of a tool's life."""

    kind: Literal["noted"] = "noted"
    what: str
    data: JsonValue = None


class Finished(_Entry):
    """The run is over."""

    kind: Literal["finished"] = "finished"
    status: RunStatus
    reason: TerminationReason
    output: JsonValue = None
    text: str = ""
    usage: Usage = Usage()
    last_tool: str | None = None


AnyEntry: TypeAlias = Asked | Decided | Returned | Corrected | Noted | Finished
Entry = Annotated[AnyEntry, Field(discriminator="kind")]
"""One thing that happened."""


Output = TypeVar("Output", default=Any)


class RunResult(BaseModel, Generic[Output]):
    """How a run ended.

    Attributes:
        run_id: of which run.
        status: succeeded, failed or cancelled.
        reason: why it ended.
        output: of a run that succeeded; else None.
        text: of a run that did not: what happened, and what to do.
        steps: how many decisions models made, in the runs that this one started included.
        usage: what they took.
        last_tool: the tool that was called last, if any.
    """

    model_config = _CLOSED

    run_id: str
    status: RunStatus
    reason: TerminationReason
    output: Output | None = None
    text: str = ""
    steps: int = Field(ge=0)
    usage: Usage = Usage()
    last_tool: str | None = None
