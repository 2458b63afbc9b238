"""Guardrails allow, rewrite or refuse; one that fails refuses."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.tools.guardrails import Allow, Guardrail, Refuse, Rewrite, Subject, Verdict, judge

pytestmark = pytest.mark.unit

CALL = Subject("tool_call", {"cents": 500}, "refund")


def small(subject: Subject) -> Verdict:
    return Allow() if subject.value["cents"] <= 100 else Refuse("more than 100 cents")


def halve(subject: Subject) -> Verdict:
    return Rewrite({"cents": subject.value["cents"] // 2})


def broken(subject: Subject) -> Verdict:
    raise LookupError("no rule")


def mute(subject: Subject) -> Any: ...


@pytest.mark.parametrize(
    ("guardrails", "verdict"),
    [
        ([], Allow()),
        ([Guardrail(small)], Refuse("more than 100 cents", "small")),
        ([Guardrail(halve)], Rewrite({"cents": 250})),
        ([Guardrail(halve), Guardrail(halve)], Rewrite({"cents": 125})),
        ([Guardrail(halve), Guardrail(halve), Guardrail(halve), Guardrail(small)], Rewrite({"cents": 62})),
        ([Guardrail(small, at="tool_result")], Allow()),
        ([Guardrail(small, at=("input", "tool_call"))], Refuse("more than 100 cents", "small")),
        ([Guardrail(small, tools={"charge"})], Allow()),
        ([Guardrail(broken)], Refuse("guardrail broken failed with LookupError: no rule", "broken")),
        ([Guardrail(mute)], Refuse("guardrail mute returned a NoneType, which is no verdict", "mute")),
    ],
)
def test_the_verdict(guardrails: list[Guardrail], verdict: Verdict) -> None:
    assert judge(guardrails, CALL) == verdict


async def waits(subject: Subject) -> Verdict:
    return Allow()


def test_what_cannot_be_a_guardrail() -> None:
    with pytest.raises(ValueError, match="stands at one of"):
        Guardrail(small, at="nowhere")
    with pytest.raises(ValueError, match="stands at one of"):
        Guardrail(small, at=())
    with pytest.raises(ValueError, match="async"):
        Guardrail(waits)
