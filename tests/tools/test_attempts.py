"""Time, cancellation, retries, and calls whose outcome is not known."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from autogen_core import CancellationToken

from stagebell.errors import BusinessError, TransientError
from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import RateLimit, Status
from stagebell.tools.lifecycle import Step
from stagebell.tools.rates import Window
from stagebell.tools.tool import ToolOptions, tool
from tests.tools.executing import Bench, MemoryLedger

pytestmark = pytest.mark.unit

ONCE: ToolOptions = {"effects": "side", "requires_approval": lambda arguments: False}


@dataclass
class Service:
    """A service outside: charges once for each key, and can lose its answers."""

    charges: dict[str, int] = field(default_factory=dict)
    submitted: int = 0
    asked: int = 0
    lose: int = 0  # so many answers are lost after the effect
    drop: int = 0  # so many requests are lost before it
    says: list[Status] = field(default_factory=list)

    async def charge(self, key: str, cents: int) -> str:
        self.submitted += 1
        if self.drop:
            self.drop -= 1
            raise ConnectionError("the request was lost")
        self.charges.setdefault(key, cents)
        if self.lose:
            self.lose -= 1
            raise ConnectionError("the answer was lost")
        return f"charged {cents}"

    async def status(self, context: ToolContext[Any]) -> Status:
        self.asked += 1
        if self.says:
            return self.says.pop(0)
        cents = self.charges.get(context.idempotency_key)
        return Status("absent") if cents is None else Status("succeeded", f"charged {cents}")


async def ask_service(context: ToolContext[Service]) -> Status:
    return await context.deps.status(context)


def charging(**options: Any) -> Any:
    async def charge(context: ToolContext[Service], cents: int) -> str:
        return await context.deps.charge(context.idempotency_key, cents)

    return tool(charge, **options)


ARGUMENTS = '{"cents": 5}'


async def run(service: Service, *, ledger: Any = None, unsure: bool = False, **options: Any) -> Any:
    return await Bench(charging(**options), deps=service, ledger=ledger, patience=0.5).run(
        "charge", ARGUMENTS, unsure=unsure
    )


async def test_a_tool_that_is_out_of_time_is_cancelled_and_gone() -> None:
    cancelled = asyncio.Event()

    async def slow(context: ToolContext[Any]) -> None:
        left = context.remaining()
        assert left is not None
        assert 0 < left <= 0.2
        try:
            await asyncio.sleep(5)
        finally:
            assert context.cancellation_token.is_cancelled()
            cancelled.set()

    before, started = asyncio.all_tasks(), time.monotonic()
    code, text = await Bench(tool(slow, timeout=0.2)).error("slow")
    assert time.monotonic() - started < 2
    assert code is ErrorCode.TIMEOUT
    assert "did not end within 0.2 seconds" in text
    assert "whether it had its effect is not known" in text
    assert cancelled.is_set()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("by", ["token", "task"])
async def test_cancelling_reaches_the_tool_and_the_caller(by: str) -> None:
    started, ended, token = asyncio.Event(), asyncio.Event(), CancellationToken()

    async def slow() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    before = asyncio.all_tasks()
    task = asyncio.create_task(Bench(slow).run("slow", token=token))
    await asyncio.wait_for(started.wait(), 5)
    token.cancel() if by == "token" else task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert ended.is_set()
    assert asyncio.all_tasks() == before


async def test_what_a_tool_hangs_on_its_token_may_fail() -> None:
    """As what AutoGen's client of MCP servers does: the tool is told to end all the same."""
    started, ended, token = asyncio.Event(), asyncio.Event(), CancellationToken()

    async def slow(context: ToolContext[Any]) -> None:
        context.cancellation_token.link_future(object())
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(Bench(slow).run("slow", token=token))
    await asyncio.wait_for(started.wait(), 5)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert ended.is_set()
    assert (await Bench(tool(slow, timeout=0.05)).error("slow"))[0] is ErrorCode.TIMEOUT


async def test_a_call_that_is_cancelled_before_it_starts_never_runs() -> None:
    token = CancellationToken()
    token.cancel()
    reached: list[int] = []

    async def act() -> None:
        reached.append(1)

    task = asyncio.create_task(Bench(act).run("act", token=token))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reached == []


async def test_a_tool_that_swallows_its_cancellation_is_told_of_and_holds_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    async def eats() -> str:
        try:
            await release.wait()
        except BaseException:
            return "as if nothing were"
        return ""

    with caplog.at_level(logging.WARNING, "stagebell"):
        started = time.monotonic()
        codes = [(await Bench(tool(each, timeout=0.05)).error(each.__name__))[0] for each in (stubborn, eats)]
        assert time.monotonic() - started < 3
    assert codes == [ErrorCode.TIMEOUT] * 2
    assert ["goes on" in caplog.messages[0], "returned a value" in caplog.messages[1]] == [True, True]
    assert all("swallows CancelledError" in message for message in caplog.messages)
    release.set()


@pytest.mark.parametrize("options", [{"effects": "none"}, {"effects": "idempotent"}])
async def test_what_may_run_again_is_tried_again(options: ToolOptions) -> None:
    attempts: list[tuple[int, str]] = []

    async def flaky(context: ToolContext[Any]) -> str:
        attempts.append((context.attempt, context.idempotency_key))
        if len(attempts) < 3:
            raise TransientError("busy")
        return "done"

    bench = Bench(tool(flaky, retries=2, **options))
    assert await bench.value("flaky") == "done"
    assert attempts == [(1, "run:1"), (2, "run:1"), (3, "run:1")]
    assert bench.outcomes("retried") == [(Step.EXECUTE, "retried")] * 2


async def test_retries_come_to_an_end_and_other_errors_get_none() -> None:
    reached: list[int] = []

    async def act(wrong: bool) -> None:
        reached.append(1)
        raise BusinessError("no") if wrong else TransientError("busy")

    bench = Bench(tool(act, effects="none", retries=2))
    assert await bench.error("act", '{"wrong": false}') == (ErrorCode.TRANSIENT, "busy")
    assert len(reached) == 3
    assert await bench.error("act", '{"wrong": true}') == (ErrorCode.BUSINESS, "no")
    assert len(reached) == 4


async def test_an_attempt_that_runs_out_of_time_is_tried_again() -> None:
    attempts: list[int] = []

    async def slow_once(context: ToolContext[Any]) -> str:
        attempts.append(context.attempt)
        await asyncio.sleep(5 if context.attempt == 1 else 0)
        return "done"

    assert await Bench(tool(slow_once, effects="none", timeout=0.1, retries=1)).value("slow_once") == "done"
    assert attempts == [1, 2]


async def test_a_lost_answer_and_a_retry_charge_once() -> None:
    service = Service(lose=1)
    assert (await run(service, effects="idempotent", retries=1)).value == "charged 5"
    assert (service.charges, service.submitted) == ({"run:1": 5}, 2)


@pytest.mark.parametrize(
    ("service", "submitted", "value"),
    [
        (Service(lose=1), 1, "charged 5"),  # sent, the answer lost
        (Service(drop=1), 2, "charged 5"),  # never arrived
        (Service(lose=1, says=[Status("processing"), Status("processing")]), 1, "charged 5"),
    ],
)
async def test_the_service_is_asked_when_an_answer_is_lost(service: Service, submitted: int, value: str) -> None:
    result = await run(service, effects="side", status=ask_service, retries=1)
    assert (result.value, service.submitted, service.charges) == (value, submitted, {"run:1": 5})


EARLIER: list[tuple[Service, ToolOptions, int, tuple[ErrorCode | None, str]]] = [
    (Service(), {"effects": "idempotent"}, 1, (None, "charged 5")),
    (Service(), {"effects": "side", "status": ask_service}, 1, (None, "charged 5")),  # absent: run for the first time
    (Service(charges={"run:1": 5}), {"status": ask_service}, 0, (None, "charged 5")),  # done, never noted
    (
        Service(says=[Status("failed", "card expired")]),
        {"status": ask_service},
        0,
        (ErrorCode.BUSINESS, "'charge' failed: card expired"),
    ),
    (
        Service(charges={"run:1": 5}, says=[Status("processing")] * 2),
        {"status": ask_service},
        0,
        (None, "charged 5"),
    ),
    (
        Service(says=[Status("processing")] * 99),
        {"status": ask_service},
        0,
        (ErrorCode.OUTCOME_UNKNOWN, "is not known: it is still being processed"),
    ),
    (Service(), ONCE, 0, (ErrorCode.OUTCOME_UNKNOWN, "It is not run again")),
    (Service(), {}, 0, (ErrorCode.OUTCOME_UNKNOWN, "It is not run again")),
]


@pytest.mark.parametrize("known_by", ["ledger", "caller"])
@pytest.mark.parametrize(("service", "options", "submitted", "expected"), EARLIER)
async def test_what_becomes_of_a_call_that_may_have_run(
    service: Service,
    options: ToolOptions,
    submitted: int,
    expected: tuple[ErrorCode | None, str],
    known_by: str,
) -> None:
    service = Service(dict(service.charges), says=list(service.says))
    ledger = MemoryLedger(attempts={"run:1": 1} if known_by == "ledger" else {})
    result = await run(service, ledger=ledger, unsure=known_by == "caller", **options)
    assert (result.code, service.submitted) == (expected[0], submitted)
    assert expected[1] in result.text
    assert ledger.results["run:1"] == result


async def test_a_status_that_cannot_be_told_is_asked_for_again() -> None:
    asked: list[int] = []

    async def status(context: ToolContext[Service]) -> Status:
        asked.append(1)
        if len(asked) == 1:
            raise ConnectionError("away")
        return Status("succeeded", 7)

    result = await run(Service(), unsure=True, status=status)
    assert (result.value, len(asked)) == (7, 2)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, ErrorCode.TRANSIENT),
        (ONCE, ErrorCode.OUTCOME_UNKNOWN),
        ({"effects": "idempotent"}, ErrorCode.TRANSIENT),
    ],
)
async def test_a_lost_answer_without_retries_is_no_certain_failure(options: ToolOptions, code: ErrorCode) -> None:
    service = Service(lose=1)
    result = await run(service, **options)
    assert (result.code, service.submitted) == (code, 1)
    assert "whether it had its effect is not known" in result.text


async def test_a_cancelled_call_that_is_tried_again_has_one_effect() -> None:
    service, token, began = Service(), CancellationToken(), asyncio.Event()

    async def charge(context: ToolContext[Service], cents: int) -> str:
        result = await context.deps.charge(context.idempotency_key, cents)
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return result

    bench = Bench(tool(charge, effects="side", status=ask_service), deps=service)
    first = asyncio.create_task(bench.run("charge", ARGUMENTS, token=token))
    await asyncio.wait_for(began.wait(), 5)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await bench.value("charge", ARGUMENTS, unsure=True) == "charged 5"
    assert (service.submitted, service.charges) == (1, {"run:1": 5})


Undone = list[tuple[Mapping[str, Any], Any, str]]


def compensating(undone: Undone, error: Exception | None = None) -> Callable[..., Any]:
    def undo(arguments: Mapping[str, Any], result: Any, context: ToolContext[Service]) -> str:
        undone.append((arguments, result, context.idempotency_key))
        if error is not None:
            raise error
        return "undone"

    return undo


CALL = ToolCall(id="1", name="charge", arguments=ARGUMENTS)
DONE = ToolResult(call_id="1", tool_name="charge", value="charged 5")


async def test_compensation_is_a_call_of_its_own() -> None:
    undone: Undone = []
    ledger = MemoryLedger()
    bench = Bench(charging(effects="side", compensate=compensating(undone)), ledger=ledger)
    for _ in range(2):
        result = await bench.executor.compensate(CALL, DONE, run_id="run", deps=Service())
        assert result == ToolResult(call_id="1~undo", tool_name="charge", value="undone")
    assert undone == [({"cents": 5}, "charged 5", "run:1~undo")]
    assert ledger.results.keys() == {"run:1~undo"}


async def test_compensation_that_may_have_run_is_not_repeated_blindly() -> None:
    undone: Undone = []
    ledger = MemoryLedger(attempts={"run:1~undo": 1})
    bench = Bench(charging(effects="side", compensate=compensating(undone)), ledger=ledger)
    result = await bench.executor.compensate(CALL, DONE, run_id="run", deps=Service())
    assert result is not None
    assert (result.code, undone) == (ErrorCode.OUTCOME_UNKNOWN, [])


async def test_compensation_that_fails_says_so_and_there_may_be_nothing_to_undo() -> None:
    failing = Bench(charging(effects="side", compensate=compensating([], BusinessError("too late"))))
    result = await failing.executor.compensate(CALL, DONE, run_id="run", deps=Service())
    assert result is not None
    assert (result.code, result.text) == (ErrorCode.BUSINESS, "too late")
    failed = ToolResult.error(CALL, ErrorCode.BUSINESS, "no")
    assert await failing.executor.compensate(CALL, failed, run_id="run", deps=Service()) is None
    assert await Bench(charging()).executor.compensate(CALL, DONE, run_id="run", deps=Service()) is None


def test_a_window_of_calls() -> None:
    window = Window(RateLimit(2, 1.0, wait=1.5))
    assert [window.take(now) for now in (0.0, 0.5, 0.6, 0.6, 0.6)] == [0.0, 0.0, 0.4, 0.9, pytest.approx(1.4)]
    assert window.take(0.6) is None
    assert window.take(9.0) == 0.0
