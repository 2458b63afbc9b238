"""What a model agent does with an answer before it counts as its output."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from stagebell import LocalRuntime
from stagebell.agents.context import RunContext
from stagebell.errors import OutputRejected
from stagebell.messages.conversation import TerminationReason
from stagebell.tools.guardrails import Allow, Guardrail, Refuse, Rewrite, Subject
from tests.support.loops import host_model, run, says, sent

pytestmark = pytest.mark.runtime


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """In memory, started."""
    async with LocalRuntime() as runtime:
        yield runtime


async def test_an_output_is_looked_at_before_it_counts(runtime: LocalRuntime) -> None:
    class Score(BaseModel):
        value: float

    async def good(output: Score, context: RunContext[Any]) -> None:
        if output.value < 0.5:
            raise OutputRejected("that is not good enough")

    def rounded(output: Score, context: RunContext[Any]) -> Score:
        return Score(value=round(output.value, 1))

    model = await host_model(
        runtime, says('{"value": 0.1}', '{"value": 0.87}'), output_type=Score, output_validators=[good, rounded]
    )
    result = await run(runtime)
    assert result.output == {"value": 0.9}
    assert "not good enough" in sent(model)


@pytest.mark.parametrize(
    ("answer", "output_type", "output"),
    [
        ("plain", str, "plain"),
        ("7", int, 7),
        ('Here it is:\n```json\n{"a": 1}\n```', dict[str, int], {"a": 1}),
        ("[1, 2]", list[int], [1, 2]),
        ("null", int | None, None),
    ],
)
async def test_kinds_of_outputs(runtime: LocalRuntime, answer: str, output_type: Any, output: Any) -> None:
    await host_model(runtime, says(answer), output_type=output_type)
    result = await run(runtime)
    assert (result.status, result.output) == ("succeeded", output)


async def test_guardrails_at_the_task_and_at_the_output(runtime: LocalRuntime) -> None:
    def check(subject: Subject) -> Any:
        text = str(subject.value)
        if "bomb" in text:
            return Refuse("not for us")
        return Rewrite(text.replace("4111", "****")) if "4111" in text else Allow()

    model = await host_model(
        runtime, says("your card 4111", "a bomb"), guardrails=[Guardrail(check, at=("input", "output"))]
    )
    refused = await run(runtime, "a bomb")
    assert (refused.status, refused.reason, refused.steps) == ("failed", "refused", 0)
    assert not model.requests
    assert (await run(runtime, "my card is 4111")).output == "your card ****"
    assert "****" in sent(model)
    assert (await run(runtime, "x")).reason is TerminationReason.REFUSED


@pytest.mark.parametrize("place", ["validator", "cost"])
async def test_an_answer_that_cannot_be_checked_has_been_paid_for(runtime: LocalRuntime, place: str) -> None:
    def fails(*given: Any) -> Any:
        raise RuntimeError("no way")

    options: dict[str, Any] = {"output_validators": [fails]} if place == "validator" else {"cost": fails}
    if place == "validator":
        options["cost"] = lambda usage: 0.5
    await host_model(runtime, says("an answer"), **options)
    result = await run(runtime)
    assert result.reason is TerminationReason.MODEL_ERROR
    assert (result.usage.requests, result.usage.cost) == (1, 0.5 if place == "validator" else 0.0)
    assert result.usage.tokens > 0
