"""The life of one call: its steps in order, what each of them tells, and what is known of a call on its way.

    parse → find → validate → guardrail → authorise → rate_limit → idempotency → approve
          → intent → execute → record → guard_result → answer

A step lets the call pass, or ends its life with a result; "answer" is the last one in any case.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import JsonValue

from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.messages.trusted import trusted
from stagebell.runtime.engine.metrics import count_call
from stagebell.tools.containing import called
from stagebell.tools.context import ToolContext
from stagebell.tools.running import Stop
from stagebell.tools.tool import Checked, TypedTool

logger = logging.getLogger("stagebell")

DepsT = TypeVar("DepsT")


Outcome = Literal["passed", "rewritten", "retried", "repeated", "waiting", "failed"]


class Step(StrEnum):
    """The steps, in order."""

    PARSE = "parse"
    FIND = "find"
    VALIDATE = "validate"
    GUARDRAIL = "guardrail"
    AUTHORISE = "authorise"
    RATE_LIMIT = "rate_limit"
    IDEMPOTENCY = "idempotency"
    APPROVE = "approve"
    INTENT = "intent"
    EXECUTE = "execute"
    RECORD = "record"
    GUARD_RESULT = "guard_result"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """A step is over.

    Attributes:
        step: which one.
        run_id: of which run.
        call_id: of which call.
        tool: its name as the model spelt it.
        outcome: "passed", or "rewritten" by a guardrail or a person, "retried", "repeated" (the result was there),
            "waiting" (for a person), or "failed".
        code: of a failure.
        detail: more, in words.
    """

    step: Step
    run_id: str
    call_id: str
    tool: str
    outcome: Outcome = "passed"
    code: ErrorCode | None = None
    detail: str = ""


class Decided(Protocol):
    """What a person said of a call."""

    @property
    def approved(self) -> bool:
        """Whether it may run."""
        ...

    @property
    def arguments(self) -> Mapping[str, JsonValue] | None:
        """The arguments that it is to run with; None for those of the model."""
        ...

    @property
    def reason(self) -> str:
        """Why it may not."""
        ...


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """A person has to agree before this call runs; then it is run again, with what was decided.

    Attributes:
        call: which one.
        run_id: of which run.
        arguments: as they would be given to the tool.
    """

    call: ToolCall
    run_id: str
    arguments: Mapping[str, JsonValue]

    @property
    def key(self) -> str:
        """The call's idempotency key, by which the decision finds it."""
        return f"{self.run_id}:{self.call.id}"


Ended: TypeAlias = ToolResult | NeedsApproval | None
"""What ends a life at a step; None lets it pass."""


@dataclass(slots=True)
class Life(Generic[DepsT]):
    """What is known of a call on its way.

    `given` are the arguments that the tool will read, `checked` the same found valid, and `arguments` the same as hooks
    and people see them: as JSON data, with defaults filled in and secrets hidden.
    """

    call: ToolCall
    run_id: str
    deps: DepsT
    stop: Stop
    decided: Decided | None
    earlier: ToolResult | None
    unsure: bool = False
    unlisted: str = ""  # why the tools of a workbench are not known
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    checked: Checked[DepsT] | None = None
    tool: TypedTool[DepsT] | None = None
    result: ToolResult | None = None
    note: tuple[Literal["rewritten", "retried", "repeated"], str] | None = None
    attempts: int = 0  # at the body of the tool, those of earlier turns included
    began: float = field(default_factory=time.perf_counter)

    @property
    def found(self) -> TypedTool[DepsT]:
        """The tool, after the step that finds it."""
        assert self.tool is not None
        return self.tool

    @property
    def valid(self) -> Checked[DepsT]:
        """The arguments, after the step that validates them."""
        assert self.checked is not None
        return self.checked

    @property
    def arguments(self) -> dict[str, JsonValue]:
        """The arguments as JSON data, after the step that validates them."""
        return self.valid.data

    @property
    def key(self) -> str:
        """The call's idempotency key."""
        return f"{self.run_id}:{self.call.id}"

    def context(self, attempt: int = 1, ends_at: float | None = None) -> ToolContext[DepsT]:
        """What the tool is told at an attempt."""
        return ToolContext(self.deps, self.run_id, self.call.id, self.found.name, attempt=attempt, ends_at=ends_at)

    def failed(self, code: ErrorCode, text: str) -> ToolResult:
        """The result of a call that has no value."""
        return ToolResult.error(self.call, code, text, self.attempts)

    def succeeded(self, value: JsonValue) -> ToolResult:
        """The result of a call that has one."""
        call = self.call
        return trusted(ToolResult, call_id=call.id, tool_name=call.name, value=value, attempts=self.attempts)


def count(life: Life[Any], ended: ToolResult | NeedsApproval) -> None:
    """Let metrics know how a call has ended."""
    tool = "(unknown)" if life.tool is None else life.tool.name
    code = "waiting" if isinstance(ended, NeedsApproval) else ended.code or "ok"
    count_call(tool, code, time.perf_counter() - life.began)


def event_of(life: Life[Any], step: Step, ended: Ended) -> ToolEvent:
    """What is told of a step that is over."""
    outcome: Outcome = "passed"
    code, detail = None, ""
    result = life.result if step is Step.EXECUTE and ended is None else ended
    if isinstance(ended, NeedsApproval):
        outcome = "waiting"
    elif life.note is not None:
        outcome, detail = life.note
    elif isinstance(result, ToolResult) and result.is_error:
        outcome, code, detail = "failed", result.code, result.text
    return ToolEvent(step, life.run_id, life.call.id, life.call.name, outcome, code, detail)


def harmless(sink: Callable[[ToolEvent], None]) -> Callable[[ToolEvent], None]:
    """A function that tells the same of steps, and whose errors are logged: no call may suffer from who looks on."""

    def tell(event: ToolEvent) -> None:
        try:
            called(sink, event)
        except Exception:
            logger.exception("what was to be told of a step of tool %s could not be", event.tool)

    return tell
