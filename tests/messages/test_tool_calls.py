"""Decisions and results are closed: what they do not name ends at the boundary."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from stagebell.messages.conversation import (
    Asked,
    Decided,
    Entry,
    Finished,
    Returned,
    RunStatus,
    TerminationReason,
    Usage,
)
from stagebell.messages.tool_calls import ErrorCode, FinalOutput, ToolCall, ToolResult, UseTools, read_decision

pytestmark = pytest.mark.unit

CALL = {"id": "1", "name": "add", "arguments": "{}"}


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "tol", "calls": [CALL]},
        {"calls": [CALL]},
        {"kind": "tools", "calls": []},
        {"kind": "tools", "calls": [CALL, CALL]},
        {"kind": "tools", "call": [CALL]},
        {"kind": "tools", "calls": [{**CALL, "args": "{}"}]},
        {"kind": "final", "output": 1, "outptu": 2},
        {"kind": "final"},
        {"kind": "handoff"},
        "final",
    ],
)
def test_what_is_no_decision_is_refused(data: Any) -> None:
    """An unknown kind, a misspelt field, no call or two calls of one id."""
    with pytest.raises(ValidationError):
        read_decision(data)


def test_a_decision_is_told_apart_by_its_kind() -> None:
    """And comes back as it was written."""
    tools = read_decision({"kind": "tools", "calls": [CALL]})
    assert tools == UseTools(calls=(ToolCall(id="1", name="add"),))
    assert read_decision(tools.model_dump()) == tools
    assert read_decision({"kind": "final", "output": {"a": [1]}}) == FinalOutput(output={"a": [1]})


def test_an_error_has_a_code_and_a_text() -> None:
    """An empty text never reaches the model."""
    call = ToolCall(id="1", name="add")
    assert "transient" in ToolResult.error(call, ErrorCode.TRANSIENT, "  ").text
    for wrong in ({"is_error": True}, {"code": "fatal"}, {"is_error": True, "code": "fatal", "value": ""}):
        with pytest.raises(ValidationError):
            ToolResult.model_validate({"call_id": "1", "tool_name": "add", **wrong})


def test_a_value_is_read_as_text_or_as_json() -> None:
    """A text as it is, all else as compact JSON."""
    assert ToolResult(call_id="1", tool_name="add", value="5 €").text == "5 €"
    assert ToolResult(call_id="1", tool_name="add", value={"a": [1, None]}).text == '{"a":[1,null]}'


def test_a_conversation_survives_json() -> None:
    """Every kind of entry comes back as the class it was."""
    where: dict[str, Any] = {"run_id": "r", "step": 1, "at": 5}
    entries: list[Entry] = [
        Asked(**where, content="20 + 22?"),
        Decided(**where, decision=UseTools(calls=(ToolCall(id="1", name="add"),)), usage=Usage(requests=1)),
        Returned(**where, result=ToolResult(call_id="1", tool_name="add", value=42)),
        Finished(**where, status=RunStatus.SUCCEEDED, reason=TerminationReason.FINAL_OUTPUT, output=42),
    ]
    adapter: TypeAdapter[list[Entry]] = TypeAdapter(list[Entry])
    assert adapter.validate_json(adapter.dump_json(entries)) == entries


def test_usage_adds_up() -> None:
    """Field by field."""
    total = Usage(requests=1, prompt_tokens=2, cost=0.5) + Usage(requests=1, completion_tokens=3, cost=0.25)
    assert total == Usage(requests=2, prompt_tokens=2, completion_tokens=3, cost=0.75)
    assert total.tokens == 5
