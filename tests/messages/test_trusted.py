"""Models that are made without validation are the same as those that the class makes."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage
from pydantic import BaseModel, Field, ValidationError

from stagebell.messages.conversation import Decided, Returned, Usage
from stagebell.messages.tool_calls import ToolCall, ToolResult, UseTools
from stagebell.messages.trusted import trusted

pytestmark = pytest.mark.unit

CALL = ToolCall(id="c1", name="add", arguments="{}")
RESULT = ToolResult(call_id="c1", tool_name="add", value={"sum": [42]})
STAMP: dict[str, Any] = {"run_id": "a/1#0", "step": 1, "at": 2}
RETURNED = FunctionExecutionResult(content="42", name="add", call_id="c1", is_error=False)
MODELS: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (Usage, {"requests": 1, "cost": 0.5}),
    (UseTools, {"calls": (CALL,), "text": "now"}),
    (ToolResult, {"call_id": "c1", "tool_name": "add", "value": {"sum": [42]}}),
    (Decided, {**STAMP, "decision": UseTools(calls=(CALL,)), "usage": Usage(requests=1)}),
    (Returned, {**STAMP, "result": RESULT}),
    (AssistantMessage, {"content": [FunctionCall(id="c1", name="add", arguments="{}")], "source": "assistant"}),
    (FunctionExecutionResult, {"content": "42", "name": "add", "call_id": "c1", "is_error": False}),
    (FunctionExecutionResultMessage, {"content": [RETURNED]}),
]


@pytest.mark.parametrize(("model", "values"), MODELS, ids=lambda each: getattr(each, "__name__", ""))
def test_it_is_what_the_class_makes(model: type[BaseModel], values: dict[str, Any]) -> None:
    made, usual = trusted(model, **values), model(**values)
    assert made == usual
    assert repr(made) == repr(usual)
    assert made.model_dump_json() == usual.model_dump_json()
    assert model.model_validate_json(made.model_dump_json()) == usual


def test_a_copy_leaves_the_others_alone() -> None:
    first, second = trusted(Usage, requests=1), trusted(Usage, requests=2)
    changed = first.model_copy(update={"requests": 3})
    assert (first.requests, second.requests, changed.requests) == (1, 2, 3)
    assert changed == Usage(requests=3)


def test_it_stays_frozen() -> None:
    usage: Any = trusted(Usage, requests=1)
    with pytest.raises(ValidationError):
        usage.requests = 2


class Listed(BaseModel):
    """Its default is made anew each time."""

    names: list[str] = Field(default_factory=list[str])


def test_a_class_that_only_its_constructor_can_fill_is_refused() -> None:
    with pytest.raises(TypeError, match="Listed"):
        trusted(Listed)
