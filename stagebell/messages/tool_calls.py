"""What a model may ask for, and what comes of it: calls of tools, their results, and the decision that each answer is.

A decision is a closed union told apart by its `kind`, so a misspelt field or an unknown kind ends at the boundary and
never reaches a tool. The arguments of a call stay the text that the model wrote: who reads it is the tool's lifecycle.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, model_validator

_CLOSED: Final = ConfigDict(frozen=True, extra="forbid")
_compact: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ErrorCode(StrEnum):
    """Why a call of a tool has no value; stable, so that it can be counted and compared."""

    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    GUARDRAIL = "guardrail"
    DENIED = "denied"
    RATE_LIMITED = "rate_limited"
    BUSINESS = "business"
    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    OUTCOME_UNKNOWN = "outcome_unknown"
    FATAL = "fatal"
    CANCELLED = "cancelled"


class ToolCall(BaseModel):
    """One call that a model asks for.

    Attributes:
        id: tells the call from the others of its run.
        name: the tool, as the model spelt it.
        arguments: JSON text, as the model wrote it.
    """

    model_config = _CLOSED

    id: str = Field(min_length=1)
    name: str
    arguments: str = "{}"


class ToolResult(BaseModel):
    """What came of one call.

    Attributes:
        call_id: of which call.
        tool_name: of which tool.
        value: what the tool returned, or the text of the error, which is never empty.
        is_error: there is no value.
        code: why there is none.
        attempts: how often the tool was run for it, as far as that is known; 0 when it never was.
    """

    model_config = _CLOSED

    call_id: str
    tool_name: str
    value: JsonValue = None
    is_error: bool = False
    code: ErrorCode | None = None
    attempts: int = Field(default=1, ge=0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.is_error != (self.code is not None):
            raise ValueError("an error has a code, and nothing else has one")
        if self.is_error and not (isinstance(self.value, str) and self.value.strip()):
            raise ValueError("the value of an error is a text that says what happened")
        return self

    @classmethod
    def error(cls, call: ToolCall, code: ErrorCode, text: str, attempts: int = 0) -> Self:
        """The result of a call that has no value; an empty text is replaced by the code."""
        said = text if text.strip() else f"the tool failed ({code}) and did not say why"
        return cls(call_id=call.id, tool_name=call.name, value=said, is_error=True, code=code, attempts=attempts)

    @property
    def text(self) -> str:
        """As the model reads it: a text as it is, everything else as compact JSON."""
        if isinstance(self.value, str):
            return self.value
        return str(self.value) if type(self.value) is int else _compact(self.value)


class FinalOutput(BaseModel):
    """The run ends with this output, once it is found valid."""

    model_config = _CLOSED

    kind: Literal["final"] = "final"
    output: JsonValue


class UseTools(BaseModel):
    """These tools are to be called, in this order; what the model said beside it is `text`."""

    model_config = _CLOSED

    kind: Literal["tools"] = "tools"
    calls: tuple[ToolCall, ...] = Field(min_length=1)
    text: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len({call.id for call in self.calls}) != len(self.calls):
            raise ValueError("each call has an id of its own")
        return self


class HandOff(BaseModel):
    """Another agent goes on with the task, and its output is that of the run."""

    model_config = _CLOSED

    kind: Literal["handoff"] = "handoff"
    to: str
    message: str = ""
    call: ToolCall | None = None


class Ask(BaseModel):
    """A person is asked, and the run waits for the answer."""

    model_config = _CLOSED

    kind: Literal["ask"] = "ask"
    question: str
    call: ToolCall | None = None


AnyDecision: TypeAlias = FinalOutput | UseTools | HandOff | Ask
Decision = Annotated[AnyDecision, Field(discriminator="kind")]
"""What one answer of a model means. A hand-off and a question name the call of a tool that they came from, if any."""

_decisions: TypeAdapter[AnyDecision] = TypeAdapter(Decision)


def read_decision(data: Any) -> AnyDecision:
    """A decision out of JSON data. Raises pydantic's `ValidationError` when it is none."""
    return _decisions.validate_python(data)
