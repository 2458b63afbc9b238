"""The life of a call: its steps in order, and how each of them can end it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from autogen_core.tool_agent import ToolException
from autogen_core.tools import FunctionTool
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from stagebell.errors import BusinessError, Denied, FatalToolError, TransientError
from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import RateLimit
from stagebell.tools.guardrails import Allow, Guardrail, Refuse, Rewrite, Subject, Verdict
from stagebell.tools.lifecycle import NeedsApproval, Step
from stagebell.tools.policy import ErrorPolicy
from stagebell.tools.tool import tool
from tests.tools.executing import Bench, MemoryLedger, Said

pytestmark = pytest.mark.unit


@dataclass
class Bank:
    paid: list[tuple[str, int, str]] = field(default_factory=list)
    operator: str = "ann"
    owner: str = "ann"


def owned(arguments: Mapping[str, Any], context: ToolContext[Bank]) -> bool:
    if arguments["order"] == "A9":
        raise Denied("order A9 is somebody else's")
    return context.deps.operator == context.deps.owner


@tool(effects="idempotent", authorise=owned, rate_limit="20/s", requires_approval=lambda given: given["cents"] > 1000)
async def refund(context: ToolContext[Bank], order: str, cents: Annotated[int, Field(gt=0)] = 100) -> str:
    """Pay back."""
    if order in [paid for paid, _, _ in context.deps.paid]:
        raise BusinessError(f"order {order} was paid back already")
    context.deps.paid.append((order, cents, context.idempotency_key))
    return f"paid {cents}"


@tool(effects="none")
def add(a: int, b: int) -> int:
    return a + b


async def test_the_steps_of_a_call_in_order() -> None:
    bench = Bench(refund, deps=Bank())
    assert await bench.value("refund", '{"order": "A1"}') == "paid 100"
    assert bench.steps == list(Step)
    assert {event.outcome for event in bench.events} == {"passed"}
    assert bench.deps.paid == [("A1", 100, "run:1")]


REFUSALS = [
    ("refund", '{"order": "A1"', ErrorCode.INVALID_ARGUMENTS, "not JSON", Step.PARSE),
    ("refund", "[1]", ErrorCode.INVALID_ARGUMENTS, "a JSON array, not an object", Step.PARSE),
    ("refund", "null", ErrorCode.INVALID_ARGUMENTS, "a JSON null, not an object", Step.PARSE),
    ("refund", '{"order": "A1", "cents": NaN}', ErrorCode.INVALID_ARGUMENTS, "NaN is no JSON", Step.PARSE),
    ("refund", "[" * 100_000, ErrorCode.INVALID_ARGUMENTS, "not JSON", Step.PARSE),
    ("refunds", '{"order": "A1"}', ErrorCode.UNKNOWN_TOOL, "no tool 'refunds'; there are: refund", Step.FIND),
    ("os.system", '{"command": "ls"}', ErrorCode.UNKNOWN_TOOL, "no tool 'os.system'", Step.FIND),
    ("refund", "", ErrorCode.INVALID_ARGUMENTS, "order: Field required", Step.VALIDATE),
    ("refund", '{"order": "A1", "cents": 0}', ErrorCode.INVALID_ARGUMENTS, "greater than 0", Step.VALIDATE),
    ("refund", '{"order": "A1", "all": true}', ErrorCode.INVALID_ARGUMENTS, "all: Extra", Step.VALIDATE),
    ("refund", '{"order": "A1", "cents": 500}', ErrorCode.GUARDRAIL, "refused by small: too much", Step.GUARDRAIL),
    ("refund", '{"order": "A9"}', ErrorCode.DENIED, "order A9 is somebody else's", Step.AUTHORISE),
]


def small(subject: Subject) -> Verdict:
    return Refuse("too much") if 500 <= subject.value["cents"] < 1000 else Allow()


@pytest.mark.parametrize(("name", "arguments", "code", "said", "step"), REFUSALS)
async def test_what_is_refused_never_runs(name: str, arguments: str, code: ErrorCode, said: str, step: Step) -> None:
    bench = Bench(refund, deps=Bank(), guardrails=[Guardrail(small)])
    found, text = await bench.error(name, arguments)
    assert (found, bench.deps.paid) == (code, [])
    assert said in text
    assert bench.outcomes("failed") == [(step, "failed"), (Step.ANSWER, "failed")]
    assert bench.steps == [*list(Step)[: list(Step).index(step) + 1], Step.ANSWER]


@pytest.mark.parametrize(
    ("order", "cents", "operator", "code"),
    [
        ("A9", 100, "ann", ErrorCode.DENIED),  # somebody else's
        ("A1", -5, "ann", ErrorCode.INVALID_ARGUMENTS),  # out of bounds
        ("A2", 100, "ann", ErrorCode.BUSINESS),  # done already
        ("A1", 100, "bob", ErrorCode.DENIED),  # by somebody who may not
    ],
)
async def test_parseable_is_not_allowed(order: str, cents: int, operator: str, code: ErrorCode) -> None:
    bank = Bank(paid=[("A2", 100, "earlier")], operator=operator)
    found, _ = await Bench(refund, deps=bank).error("refund", json.dumps({"order": order, "cents": cents}))
    assert (found, len(bank.paid)) == (code, 1)


async def test_well_typed_is_not_allowed() -> None:
    bench = Bench(refund, deps=Bank(operator="bob"))
    assert await bench.error("refund", '{"order": "A1"}') == (ErrorCode.DENIED, "this call of 'refund' is not allowed")


async def test_who_cannot_find_out_whether_it_is_allowed_refuses() -> None:
    async def broken(arguments: Mapping[str, Any], context: ToolContext[Any]) -> bool:
        raise LookupError("no such customer")

    bench = Bench(tool(add.function, authorise=broken))
    code, text = await bench.error("add", '{"a": 1, "b": 2}')
    assert code is ErrorCode.DENIED
    assert "could not be found out" in text


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError


def raising(error: BaseException) -> Any:
    async def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (BusinessError("paid already"), ErrorCode.BUSINESS, "paid already"),
        (LookupError("no order"), ErrorCode.BUSINESS, "LookupError: no order"),
        (ValueError(), ErrorCode.BUSINESS, "ValueError, without a text"),
        (BusinessError(), ErrorCode.BUSINESS, "BusinessError, without a text"),
        (Odd(), ErrorCode.BUSINESS, "Odd: its text could not be made (ValueError)"),
        (Denied("not yours"), ErrorCode.DENIED, "not yours"),
        (PermissionError("not yours"), ErrorCode.DENIED, "PermissionError: not yours"),
        (TransientError("busy"), ErrorCode.TRANSIENT, "busy"),
        (FatalToolError("stop"), ErrorCode.FATAL, "stop"),
        (SystemExit(3), ErrorCode.FATAL, "the tool wanted to end the process (SystemExit, exit code 3)"),
        (asyncio.CancelledError(), ErrorCode.BUSINESS, "something that the tool awaited was cancelled"),
        (ToolException("1", "nothing found", "act"), ErrorCode.BUSINESS, "nothing found"),
        (LookupError("<a.B object at 0x7f12>"), ErrorCode.BUSINESS, "LookupError: <a.B object>"),
        (LookupError("redis://me:secret@host/0"), ErrorCode.BUSINESS, "LookupError: redis://***@host/0"),
        (LookupError("Bearer abcdef123456"), ErrorCode.BUSINESS, "LookupError: Bearer ***"),
        (LookupError("\ud800"), ErrorCode.BUSINESS, "LookupError: \\ud800"),
    ],
)
async def test_errors_are_classified_and_their_text_is_told(error: BaseException, code: ErrorCode, text: str) -> None:
    assert await Bench(tool(raising(error))).error("act") == (code, text)


async def test_a_result_that_is_no_json_is_fatal_and_named() -> None:
    async def act() -> dict[str, object]:
        return {"a": [object()]}

    assert await Bench(act).error("act") == (
        ErrorCode.FATAL,
        "the result of tool 'act'.a[0] is a object, which cannot be written as JSON",
    )


async def test_the_next_call_runs_although_one_failed() -> None:
    bench = Bench(tool(raising(LookupError()), name="first"), add)
    results = [await bench.run("first", id="1"), await bench.run("add", '{"a": 20, "b": 22}', id="2")]
    assert [(result.call_id, result.is_error) for result in results] == [("1", True), ("2", False)]


async def test_tools_of_autogen_run_too() -> None:
    bench = Bench(FunctionTool(add.function, "Adds."))
    assert await bench.value("add", '{"a": 20, "b": 22}') == "42"
    assert (await bench.error("add", '{"a": 20}'))[0] is ErrorCode.INVALID_ARGUMENTS


async def test_a_person_is_asked() -> None:
    bench, arguments = Bench(refund, deps=Bank()), '{"order": "A1", "cents": 5000}'
    asked = await bench.run("refund", arguments)
    assert asked == NeedsApproval(
        ToolCall(id="1", name="refund", arguments=arguments), "run", {"order": "A1", "cents": 5000}
    )
    assert asked.key == "run:1"
    assert bench.deps.paid == []
    assert bench.outcomes("waiting") == [(Step.APPROVE, "waiting"), (Step.ANSWER, "waiting")]
    assert await bench.value("refund", arguments, decided=Said(True)) == "paid 5000"


async def test_a_person_rejects() -> None:
    bench = Bench(refund, deps=Bank())
    for arguments in ('{"order": "A1", "cents": 5000}', '{"order": "A1"}'):
        said = Said(False, reason="no receipt")
        assert await bench.error("refund", arguments, decided=said) == (
            ErrorCode.DENIED,
            "it was not approved: no receipt",
        )
    assert bench.deps.paid == []


async def test_a_person_changes_the_arguments_and_they_are_checked_again() -> None:
    bench, arguments = Bench(refund, deps=Bank()), '{"order": "A1", "cents": 5000}'
    wrong = Said(True, {"order": "A1", "cents": -1})
    assert (await bench.error("refund", arguments, decided=wrong))[0] is ErrorCode.INVALID_ARGUMENTS
    foreign = Said(True, {"order": "A9", "cents": 10})
    assert (await bench.error("refund", arguments, decided=foreign))[0] is ErrorCode.DENIED
    assert await bench.value("refund", arguments, decided=Said(True, {"order": "A1", "cents": 2000})) == "paid 2000"


async def test_a_predicate_that_fails_lets_nothing_run() -> None:
    bench = Bench(tool(add.function, requires_approval=lambda arguments: bool(arguments["c"])))
    code, text = await bench.error("add", '{"a": 1, "b": 2}')
    assert code is ErrorCode.FATAL
    assert "step approve failed: KeyError" in text


async def test_guardrails_rewrite_what_passes() -> None:
    def double(subject: Subject) -> Verdict:
        return Rewrite({**subject.value, "a": subject.value["a"] * 2})

    def hide(subject: Subject) -> Verdict:
        return Rewrite(f"<{subject.value}>")

    bench = Bench(add, guardrails=[Guardrail(double), Guardrail(hide, at="tool_result")])
    assert await bench.value("add", '{"a": 1, "b": 2}') == "<4>"
    assert bench.outcomes("rewritten") == [(Step.GUARDRAIL, "rewritten"), (Step.GUARD_RESULT, "rewritten")]
    held_back = Bench(add, guardrails=[Guardrail(lambda subject: Refuse("secret"), at="tool_result")])
    code, text = await held_back.error("add", '{"a": 1, "b": 2}')
    assert code is ErrorCode.GUARDRAIL
    assert "the tool ran, and its result is held back" in text


async def test_a_secret_reaches_the_tool_and_nobody_else() -> None:
    shown: list[Any] = []

    async def login(password: SecretStr) -> int:
        return len(password.get_secret_value())

    def look(subject: Subject) -> Verdict:
        shown.append(subject.value)
        return Allow()

    bench = Bench(tool(login, requires_approval=True), guardrails=[Guardrail(look)])
    asked = await bench.run("login", '{"password": "sesame"}')
    assert [asked.arguments, *shown] == [{"password": "**********"}] * 2
    assert await bench.value("login", '{"password": "sesame"}', decided=Said(True)) == 6


async def test_a_call_that_was_answered_gets_the_same_answer() -> None:
    bench = Bench(refund, deps=Bank())
    earlier = ToolResult(call_id="1", tool_name="refund", value="paid before")
    assert await bench.run("refund", '{"order": "A1"}', seen={"1": earlier}) is earlier
    assert bench.deps.paid == []
    assert bench.outcomes("repeated") == [(Step.IDEMPOTENCY, "repeated")]


async def test_a_rate_limit_refuses_or_waits() -> None:
    refusing = Bench(tool(add.function, effects="none", rate_limit="2/m"))
    arguments = '{"a": 1, "b": 2}'
    assert [(await refusing.run("add", arguments)).code for _ in range(3)] == [None, None, ErrorCode.RATE_LIMITED]
    waiting = Bench(tool(add.function, effects="none", rate_limit=RateLimit(1, 0.2, wait=1.0)))
    started = time.monotonic()
    assert [(await waiting.run("add", arguments)).code for _ in range(2)] == [None, None]
    assert time.monotonic() - started >= 0.19


async def test_a_result_that_was_noted_is_told_again_by_whoever_takes_over() -> None:
    ledger, bank = MemoryLedger(), Bank()
    assert await Bench(refund, deps=bank, ledger=ledger).value("refund", '{"order": "A1"}') == "paid 100"
    second = Bench(refund, deps=bank, ledger=ledger)
    assert await second.value("refund", '{"order": "A1"}') == "paid 100"
    assert len(bank.paid) == 1
    assert second.outcomes("repeated") == [(Step.INTENT, "repeated")]


@pytest.mark.parametrize("noted", ["result", "intent", "nothing"])
async def test_what_was_let_pass_before_a_crash_is_not_refused_after_it(noted: str) -> None:
    """The hook refuses what is paid; the call that paid it is not told so when its turn runs again."""

    def unpaid(arguments: Mapping[str, Any], context: ToolContext[list[str]]) -> bool:
        return not context.deps

    async def pay(context: ToolContext[list[str]]) -> str:
        context.deps.append(context.idempotency_key)
        return "paid"

    result = ToolResult(call_id="1", tool_name="pay", value="paid")
    ledger = MemoryLedger(
        attempts={} if noted == "nothing" else {"run:1": 1}, results={"run:1": result} if noted == "result" else {}
    )
    paid = ["run:1"]
    bench = Bench(tool(pay, effects="idempotent", authorise=unpaid), deps=paid, ledger=ledger)
    found = await bench.run("pay")
    assert found.code == (ErrorCode.DENIED if noted == "nothing" else None)
    assert len(paid) == (2 if noted == "intent" else 1)  # with the same key


async def test_what_the_ledger_raises_is_raised() -> None:
    class Away(MemoryLedger):
        async def open(self, key: str) -> Any:
            raise ConnectionError("the store is away")

    bench = Bench(refund, add, deps=Bank(), ledger=Away())
    with pytest.raises(ConnectionError, match="the store is away"):
        await bench.run("refund", '{"order": "A1"}')
    assert await bench.value("add", '{"a": 1, "b": 2}') == 3  # it is pure: nothing is noted
    assert bench.deps.paid == []


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (None, False),
        (ErrorCode.UNKNOWN_TOOL, False),
        (ErrorCode.BUSINESS, False),
        (ErrorCode.FATAL, True),
        (ErrorCode.OUTCOME_UNKNOWN, True),
    ],
)
def test_what_ends_a_run(code: ErrorCode | None, ends: bool) -> None:
    assert ErrorPolicy().ends_run(code) is ends
    changed = ErrorPolicy({ErrorCode.UNKNOWN_TOOL: "end_run", ErrorCode.FATAL: "feed_back"})
    assert changed.ends_run(code) is (code in (ErrorCode.UNKNOWN_TOOL, ErrorCode.OUTCOME_UNKNOWN))


def test_calls_are_grouped_by_what_their_tools_declare() -> None:
    look = tool(add.function, name="look", parallel_safe=True)
    bench = Bench(add, look)
    calls = [ToolCall(id=str(at), name=name) for at, name in enumerate(["look", "unknown", "look", "add", "look"])]
    assert [[call.id for call in group] for group in bench.executor.groups(calls)] == [["0", "1", "2"], ["3"], ["4"]]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["add", "only", "os.system", "__import__", "run", "tools.find", ""]) | st.text(max_size=20)


@settings(deadline=None)
@given(name=names, arguments=anything.map(json.dumps) | st.text(max_size=60))
async def test_nothing_outside_the_toolset_is_ever_reached(name: str, arguments: str) -> None:
    reached: list[str] = []

    async def only(a: int = 0) -> int:
        reached.append("only")
        return a

    loaded = name in sys.modules
    result = await Bench(only).run(name, arguments)
    assert (name in sys.modules) == loaded
    assert (result.code is None) == (reached == ["only"])
    if result.code is None:
        assert name == "only"
    else:
        assert result.text.strip()
        assert (result.code is ErrorCode.UNKNOWN_TOOL) <= (name != "only")
