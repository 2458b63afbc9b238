"""The right answer by a wrong way is a fault, and the assertion says where the ways part."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stagebell.messages.conversation import (
    Asked,
    Corrected,
    Decided,
    Entry,
    Finished,
    Noted,
    Returned,
    RunStatus,
    TerminationReason,
)
from stagebell.messages.tool_calls import Ask, ErrorCode, FinalOutput, HandOff, ToolCall, ToolResult, UseTools
from stagebell.testing.trajectory import (
    ANY,
    asked,
    assert_trajectory,
    called,
    corrected,
    failed,
    finished,
    handed_off,
    returned,
)

pytestmark = pytest.mark.unit

AT: dict[str, Any] = {"run_id": "r", "step": 0, "at": 1}


def use(*calls: tuple[str, dict[str, Any]]) -> Entry:
    """The model asks for tools."""
    named = [ToolCall(id=str(n), name=name, arguments=json.dumps(given)) for n, (name, given) in enumerate(calls)]
    return Decided(**AT, decision=UseTools(calls=tuple(named)))


def result(tool: str, value: Any) -> Entry:
    """A tool returned something."""
    return Returned(**AT, result=ToolResult(call_id="0", tool_name=tool, value=value))


def end(output: Any = "done", reason: TerminationReason = TerminationReason.FINAL_OUTPUT) -> Entry:
    """The run is over."""
    status = RunStatus.SUCCEEDED if reason is TerminationReason.FINAL_OUTPUT else RunStatus.FAILED
    return Finished(**AT, status=status, reason=reason, output=output)


PAY = [
    Asked(**AT, content="pay order 7"),
    use(("find_order", {"id": 7})),
    result("find_order", {"total": 5}),
    Noted(**AT, what="approval requested"),
    use(("pay", {"order": 7, "user": "ada"})),
    result("pay", "paid"),
    Decided(**AT, decision=FinalOutput(output="paid")),
    end("paid"),
]
PAID = [
    called("find_order", id=7),
    returned("find_order", {"total": 5}),
    called("pay", order=7, user="ada"),
    returned("pay", "paid"),
    finished("paid"),
]


def test_the_way_a_run_went_is_told_in_a_few_words() -> None:
    """What was asked and what was noted is passed over."""
    assert_trajectory(PAY, PAID)
    loose = [called("find_order", with_any=True), returned("find_order"), called("pay", order=ANY, user="ada")]
    assert_trajectory(PAY, [*loose, returned("pay"), finished()])


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (use(("find_invoice", {"id": 7})), 1),  # the wrong tool
        (use(("find_order", {"id": 8})), 1),  # the wrong arguments
        (use(("find_order", {"id": 7, "history": True})), 1),  # one argument more
        (use(("find_order", {"id": True})), 1),  # true is no number
        (use(("find_order", {"id": 7}), ("pay", {"order": 7, "user": "ada"})), 2),  # paid twice
    ],
)
def test_the_same_answer_by_another_way_fails(wrong: Entry, place: int) -> None:
    """The text names the step at which the ways part, and shows the whole way."""
    with pytest.raises(AssertionError, match=rf"step {place} must be [\s\S]*finished\(reason=\"final_output\""):
        assert_trajectory([PAY[0], wrong, *PAY[2:]], PAID)


def test_too_little_and_too_much_fail() -> None:
    """As does nothing at all."""
    with pytest.raises(AssertionError, match=r"step 5 must be finished.*\nand is nothing more"):
        assert_trajectory(PAY[:-1], PAID)
    with pytest.raises(AssertionError, match="step 5 must be nothing more"):
        assert_trajectory(PAY, PAID[:-1])
    with pytest.raises(AssertionError, match="the run did:\n  nothing"):
        assert_trajectory([], PAID)


def test_errors_corrections_and_people_are_steps_too() -> None:
    """Each with what is known of it."""
    call = ToolCall(id="0", name="pay")
    entries = [
        Returned(**AT, result=ToolResult.error(call, ErrorCode.DENIED, "order 7 is not yours")),
        Corrected(**AT, error="score: missing"),
        Decided(**AT, decision=Ask(question="which order?")),
        Decided(**AT, decision=HandOff(to="billing")),
        end(None, TerminationReason.MAX_STEPS),
    ]
    way = [
        failed("pay", ErrorCode.DENIED, containing="not yours"),
        corrected(containing="score"),
        asked(containing="order"),
        handed_off("billing"),
        finished(None, reason=TerminationReason.MAX_STEPS),
    ]
    assert_trajectory(entries, way)
    for place, other in enumerate([failed("pay", ErrorCode.FATAL), corrected(containing="x"), asked(containing="why")]):
        with pytest.raises(AssertionError, match=f"step {place + 1} must be"):
            assert_trajectory(entries, [*way[:place], other, *way[place + 1 :]])
