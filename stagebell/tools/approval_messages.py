"""What agents, their desks and people's programs tell each other about calls that a person has to agree to."""

from __future__ import annotations

from typing import Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from stagebell.messages.set_aside import SetAside
from stagebell.messages.tool_calls import ToolCall

_YEAR_9999: Final = 253_370_764_800_000

M = TypeVar("M", bound=BaseModel)

Verdict = Literal["approve", "edit", "reject", "expired", "withdrawn"]


class ApprovalRequest(BaseModel):
    """An agent asks for a person's agreement; told to the desk.

    Attributes:
        id: tells it from all others of the namespace.
        run_id: of the run that waits.
        call: what is to be run.
        agent: who is told the decision, as "type/key".
        reason: why a person is asked.
        expires_at: when it is decided as "expired", in milliseconds since the epoch; None: never.
        context: text of the agent, given back with the decision.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(min_length=1)
    run_id: str
    call: ToolCall
    agent: str
    reason: str = ""
    expires_at: int | None = Field(default=None, ge=0, le=_YEAR_9999)
    context: str = ""


class ApprovalDecision(BaseModel):
    """What was decided; sent to the desk by a person's program, and told by the desk to the agent that asked.

    Attributes:
        id: of the request.
        verdict: "approve", "edit" (approved with other arguments), "reject", or, from the desk alone, "expired" and
            "withdrawn".
        arguments: with "edit": those to run with.
        reason: why.
        by: who decided.
        run_id: of the run that waits; filled in by the desk, like those below.
        call_id: of the call.
        call: what was asked for.
        context: what the agent gave with its request.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(min_length=1)
    verdict: Verdict
    arguments: dict[str, JsonValue] | None = None
    reason: str = ""
    by: str = ""
    run_id: str = ""
    call_id: str = ""
    call: ToolCall | None = None
    context: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.verdict == "edit") != (self.arguments is not None):
            raise ValueError('"edit" comes with the arguments to run with, and nothing else has any')
        return self

    @property
    def approved(self) -> bool:
        """Whether the call may run."""
        return self.verdict in ("approve", "edit")


class WithdrawApproval(BaseModel):
    """Nobody is to decide about a request any more; told to the desk by the agent that asked.

    Attributes:
        id: of the request.
        reason: why.
        by: the agent, as "type/key".
    """

    model_config = ConfigDict(frozen=True)

    id: str
    reason: str = ""
    by: str = ""


class ApprovalExpired(BaseModel):
    """The time of a request is over; the desk tells itself."""

    id: str


def decision_in(word: SetAside) -> ApprovalDecision | None:
    """The decision that was set aside; None when it was something else."""
    return _read(word, ApprovalDecision)


def request_in(word: SetAside) -> ApprovalRequest | None:
    """The request that was set aside; None when it was something else."""
    return _read(word, ApprovalRequest)


def _read(word: SetAside, cls: type[M]) -> M | None:
    try:
        return cls.model_validate(word.data) if word.type == f"stagebell.{cls.__name__}" else None
    except ValidationError:
        return None
