"""Bounds that bound nothing are refused, and so is a cost that is no number to count with."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stagebell import LocalRuntime
from stagebell.agents.limits import Limits
from stagebell.agents.model_agent import ModelAgent
from stagebell.errors import InvalidSetting
from stagebell.messages.conversation import TerminationReason
from tests.support.loops import host_model, run, says

pytestmark = pytest.mark.runtime


@pytest.mark.parametrize(
    "bound", [{"timeout": math.inf}, {"timeout": 1e300}, {"timeout": math.nan}, {"max_cost": math.nan}]
)
def test_a_limit_that_no_clock_knows_is_refused(bound: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(bound))):
        Limits(**bound)


@pytest.mark.parametrize("name", ["request_timeout", "approval_timeout"])
@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_no_time_at_all_is_refused(name: str, seconds: float) -> None:
    options: dict[str, Any] = {name: seconds}
    with pytest.raises(ValueError, match=name):
        ModelAgent(says(), **options)


@pytest.mark.parametrize("cost", [math.nan, -1.0, math.inf])
async def test_a_cost_that_cannot_be_counted_ends_the_run(cost: float) -> None:
    async with LocalRuntime() as runtime:
        await host_model(runtime, says("fine"), cost=lambda usage: cost)
        result = await run(runtime)
        assert result.reason is TerminationReason.MODEL_ERROR
        assert "the cost of a request" in result.text
