"""What a tool can declare, and what is refused when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stagebell.errors import ToolRefused
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import Declared, RateLimit, Status, Strategy
from stagebell.tools.tool import ToolOptions, tool

pytestmark = pytest.mark.unit


async def known(context: ToolContext[Any]) -> Status:
    return Status("absent")


def undo(arguments: Mapping[str, Any], result: Any, context: ToolContext[Any]) -> None: ...


async def act(what: str) -> str:
    return what


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ({}, Strategy.UNDECLARED),
        ({"effects": "none"}, Strategy.PURE),
        ({"effects": "none", "retries": 2}, Strategy.PURE),
        ({"effects": "idempotent", "retries": 2}, Strategy.IDEMPOTENT),
        ({"effects": "side", "status": known, "retries": 2}, Strategy.STATUS),
        ({"status": known}, Strategy.STATUS),
        ({"effects": "side", "compensate": undo}, Strategy.ONCE),
        ({"effects": "side", "requires_approval": True}, Strategy.ONCE),
        ({"effects": "side", "requires_approval": lambda arguments: False}, Strategy.ONCE),
    ],
)
def test_the_strategy_follows_from_what_is_declared(options: ToolOptions, strategy: Strategy) -> None:
    assert tool(act, **options).declares.strategy is strategy


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"effects": "side"}, "status=, compensate= or requires_approval="),
        ({"effects": "some"}, "effects must be one of"),
        ({"retries": 1}, "retries would repeat its effects"),
        ({"effects": "side", "compensate": undo, "retries": 1}, "retries would repeat its effects"),
        ({"effects": "none", "retries": -1}, "retries must be 0 or more"),
        ({"timeout": 0}, "timeout above 0"),
        ({"reads": "stock"}, "a set of names"),
        ({"writes": [""]}, "a set of names"),
        ({"rate_limit": "often"}, "written like"),
        ({"name": "os.system"}, "letters, digits"),
        ({"name": "x" * 65}, "64 characters"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_name_of_the_tool(options: ToolOptions, why: str) -> None:
    with pytest.raises(ToolRefused, match=why) as refused:
        tool(act, **options)
    assert refused.value.tool == options.get("name", "act")
    assert isinstance(refused.value, ValueError)


def test_approval_depends_on_the_arguments_when_it_is_a_function() -> None:
    declares = Declared(requires_approval=lambda arguments: arguments["cents"] > 100)
    assert [declares.needs_approval({"cents": cents}) for cents in (100, 101)] == [False, True]
    assert [Declared(requires_approval=wanted).needs_approval({}) for wanted in (False, True)] == [False, True]
    assert declares.approval == "by arguments"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("2/s", RateLimit(2, 1)),
        ("30/m", RateLimit(30, 60)),
        ("100/h", RateLimit(100, 3600)),
        ("5/0.5s", RateLimit(5, 0.5)),
    ],
)
def test_a_rate_limit_is_read(text: str, limit: RateLimit) -> None:
    assert RateLimit.parse(text) == limit


@pytest.mark.parametrize("text", ["", "2", "2/d", "0/s", "2/0s", "-1/s"])
def test_what_is_no_rate_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rate limit"):
        RateLimit.parse(text)


def test_a_status_has_one_of_four_kinds() -> None:
    with pytest.raises(ValueError, match="processing"):
        Status("done")


def test_the_key_of_a_call_is_that_of_its_run_and_its_own() -> None:
    one = ToolContext(None, "run", "1")
    assert one.idempotency_key == "run:1" == ToolContext(None, "run", "1", attempt=2).idempotency_key
    assert ToolContext(None, "run", "2").idempotency_key != one.idempotency_key
    assert one.remaining() is None
    assert ToolContext(None, "run", "1", ends_at=0.0).remaining() == 0.0


def test_dependencies_are_not_shown() -> None:
    assert "secret" not in repr(ToolContext("secret", "run", "1"))
