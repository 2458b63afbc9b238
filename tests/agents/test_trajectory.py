"""A run is told round by round, and secrets are not."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.agents.trajectory import rounds_of, runs_in, tell
from stagebell.messages.conversation import (
    AnyEntry,
    Asked,
    Corrected,
    Decided,
    Finished,
    Noted,
    Returned,
    RunStatus,
    TerminationReason,
    Usage,
)
from stagebell.messages.tool_calls import ErrorCode, FinalOutput, ToolCall, ToolResult, UseTools

pytestmark = pytest.mark.unit

RUN = "clerk/7#0a1b2c3d"
PAY = ToolCall(id="c1", name="pay", arguments='{"order": 7, "api_key": "hunter2hunter2"}')


def at(step: int, run_id: str = RUN) -> dict[str, Any]:
    """Where and when."""
    return {"run_id": run_id, "step": step, "at": 1_767_225_600_000 + step}


ENTRIES: list[AnyEntry] = [
    Asked(**at(0, "clerk/7#earlier0"), content="hello"),
    Asked(**at(0), content="pay order 7\nquickly"),
    Decided(**at(1), decision=UseTools(calls=(PAY,), text="I pay."), usage=Usage(prompt_tokens=9, completion_tokens=4)),
    Noted(**at(1), what="waits_for_approval", data={"call_id": "c1"}),
    Returned(**at(1), result=ToolResult.error(PAY, ErrorCode.DENIED, "not yours: redis://:hunter2@db")),
    Corrected(**at(2), answer="{", error="no JSON"),
    Decided(**at(3), decision=FinalOutput(output={"ok": False})),
    Finished(**at(3), status=RunStatus.SUCCEEDED, reason=TerminationReason.FINAL_OUTPUT, output={"ok": False}),
]


def test_a_run_is_told_round_by_round() -> None:
    """Everything that happened, and nothing of other runs."""
    assert tell(ENTRIES, RUN) == [
        "before the first round",
        "  00:00:00.000  user asks: pay order 7",
        "                quickly",
        "round 1  (9 + 4 tokens)",
        "  00:00:00.001  model says: I pay.",
        '  00:00:00.001  model calls pay: [c1] {"order": 7, "api_key": "***"}',
        '  00:00:00.001  waits for approval: {"call_id": "c1"}',
        "  00:00:00.001  pay failed (denied): [c1] not yours: redis://:***@db",
        "round 2",
        "  00:00:00.002  model says: {",
        "  00:00:00.002  correction: no JSON",
        "round 3",
        '  00:00:00.003  model ends with: {"ok": false}',
        '  00:00:00.003  succeeded (final_output): {"ok": false}',
    ]


def test_long_texts_are_cut_off_with_their_rest_counted() -> None:
    """So that a screen shows the run and not one page of it."""
    lines = tell([Asked(**at(0), content="x" * 50)], RUN, longest=10)
    assert lines[1].endswith("xxxxxxxxxx… (40 characters more)")


def test_the_runs_of_a_conversation_are_found() -> None:
    """In their order; a run that is not there has no rounds."""
    assert runs_in(ENTRIES) == ["clerk/7#earlier0", RUN]
    assert [each.step for each in rounds_of(ENTRIES, RUN)] == [0, 1, 2, 3]
    assert tell(ENTRIES, "clerk/7#unknown0") == []
