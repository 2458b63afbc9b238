"""Tools and hooks that raise what is no `Exception`, or cancel the task that they run in: the call has a result."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
from autogen_core import CancellationToken

from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.tools.executor import Executor
from stagebell.tools.guardrails import Guardrail
from stagebell.tools.tool import tool
from stagebell.tools.toolset import Toolset
from tests.tools.executing import Bench, MemoryLedger

pytestmark = pytest.mark.unit


class Odd(BaseException):
    """Of a user's."""


class Mute(BaseException):
    def __str__(self) -> str:
        raise Odd


def raising(error: BaseException) -> Callable[..., Any]:
    def hook(*arguments: Any) -> Any:
        raise error

    return hook


ODD: list[tuple[Callable[[], BaseException], str]] = [
    (lambda: Odd("boo"), "Odd"),
    (GeneratorExit, "GeneratorExit"),
    (lambda: BaseExceptionGroup("g", [Odd()]), "BaseExceptionGroup"),
    (lambda: SystemExit(3), "SystemExit"),
    (Mute, "Mute"),
]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(("error", "name"), ODD)
async def test_whatever_a_tool_raises_is_an_error_of_its_call(
    error: Callable[[], BaseException], name: str, blocking: bool
) -> None:
    async def waits() -> None:
        await asyncio.sleep(0)
        raise error()

    def blocks() -> None:
        raise error()

    ledger = MemoryLedger()
    bench = Bench(tool(blocks if blocking else waits, name="act", effects="idempotent"), ledger=ledger)
    code, text = await asyncio.wait_for(bench.error("act"), 10)
    assert code is ErrorCode.FATAL
    assert name in text
    assert [result.code for result in ledger.results.values()] == [code]


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (StopIteration("x"), ErrorCode.BUSINESS, "StopIteration"),
        (KeyboardInterrupt(), ErrorCode.FATAL, "KeyboardInterrupt"),
    ],
)
async def test_what_no_future_can_hold_comes_out_of_a_thread(error: BaseException, code: ErrorCode, name: str) -> None:
    def act() -> None:
        raise error

    found, text = await asyncio.wait_for(Bench(tool(act)).error("act"), 10)
    assert (found, name in text) == (code, True)


async def cancels_and_waits() -> str:
    asyncio.current_task().cancel()
    await asyncio.Event().wait()
    return ""


async def cancels_and_returns() -> str:
    await asyncio.sleep(0)
    asyncio.current_task().cancel()
    return "done"


async def cancels_and_raises() -> str:
    asyncio.current_task().cancel()
    raise Odd


async def test_a_tool_that_cancels_the_task_it_runs_in() -> None:
    bench = Bench(*(tool(each) for each in (cancels_and_waits, cancels_and_returns, cancels_and_raises)))
    code, text = await bench.error("cancels_and_waits")
    assert code is ErrorCode.FATAL
    assert "CancelledError" in text
    assert await bench.value("cancels_and_returns") == "done"
    assert (await bench.error("cancels_and_raises"))[0] is ErrorCode.FATAL
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


async def test_a_cancellation_from_outside_is_still_one() -> None:
    entered = asyncio.Event()

    async def swallows_its_own() -> None:
        try:
            await cancels_and_waits()
        except asyncio.CancelledError:
            entered.set()
            await asyncio.Event().wait()

    bench = Bench(tool(swallows_its_own, name="act"))
    caller = asyncio.create_task(bench.run("act"))
    await entered.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    entered.clear()
    token = CancellationToken()
    caller = asyncio.create_task(bench.run("act", token=token))
    await entered.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_the_other_results_are_kept() -> None:
    @tool(effects="none")
    async def fine() -> str:
        await asyncio.sleep(0.01)
        return "fine"

    @tool(effects="none")
    async def odd() -> str:
        raise Odd

    bench = Bench(fine, odd, tool(cancels_and_waits, effects="none"))
    names = ("fine", "odd", "cancels_and_waits", "fine")
    results = await asyncio.gather(*(bench.run(name, id=str(at)) for at, name in enumerate(names)))
    assert [result.code for result in results] == [None, ErrorCode.FATAL, ErrorCode.FATAL, None]


CLOSE_TO_HOME = (asyncio.CancelledError(), GeneratorExit())


async def act() -> str:
    return "ran"


async def waiting_hook(*arguments: Any) -> Any:
    await asyncio.sleep(0)
    raise Odd


@pytest.mark.parametrize(
    "declares",
    [
        {"authorise": raising(Odd())},
        {"authorise": lambda arguments, context: sys.exit(1)},
        {"authorise": waiting_hook},
        {"authorise": lambda arguments, context: cancels_and_waits()},
        {"requires_approval": raising(Odd())},
        *({hook: raising(error)} for hook in ("authorise", "requires_approval") for error in CLOSE_TO_HOME),
    ],
)
async def test_a_hook_that_raises_such_a_thing_lets_nothing_pass(declares: Any) -> None:
    code, text = await asyncio.wait_for(Bench(tool(act, **declares)).error("act"), 10)
    assert code is ErrorCode.FATAL
    assert any(name in text for name in ("Odd", "SystemExit", "CancelledError", "GeneratorExit"))


@pytest.mark.parametrize("error", [ValueError("no log"), Odd(), *CLOSE_TO_HOME])
async def test_whoever_is_told_of_steps_and_raises_changes_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is made once, and its result is noted."""
    ledger, made = MemoryLedger(), list[str]()

    async def pay() -> str:
        made.append("paid")
        return "paid"

    tools = Toolset[Any]([tool(pay, effects="idempotent")])
    executor = Executor[Any](tools, ledger=ledger, sink=raising(error))
    with caplog.at_level(logging.ERROR, "stagebell"):
        result = await executor.run(ToolCall(id="1", name="pay"), run_id="run", deps=None)
    assert isinstance(result, ToolResult)
    assert (result.value, made) == ("paid", ["paid"])
    assert ledger.results["run:1"] == result
    assert "of a step of tool pay" in caplog.text


@pytest.mark.parametrize("error", [Odd(), *CLOSE_TO_HOME])
async def test_a_guardrail_that_raises_such_a_thing_refuses(error: BaseException) -> None:
    bench = Bench(tool(act), guardrails=[Guardrail(raising(error))])
    assert (await bench.error("act"))[0] is ErrorCode.GUARDRAIL


async def test_a_status_that_cannot_be_had_leaves_the_outcome_unknown() -> None:
    for status in (raising(Odd()), waiting_hook):
        charge = tool(act, effects="side", status=status)
        code, text = await Bench(charge, patience=0.1).error("act", unsure=True)
        assert (code, "Odd" in text) == (ErrorCode.OUTCOME_UNKNOWN, True)


async def test_undoing_that_raises_such_a_thing_has_a_result() -> None:
    for compensate in (raising(Odd()), waiting_hook):
        bench = Bench(tool(act, effects="idempotent", compensate=compensate))
        call = ToolCall(id="1", name="act", arguments="{}")
        result = await bench.run("act")
        undone = await bench.executor.compensate(call, result, run_id="run", deps=None)
        assert undone is not None
        assert undone.code is ErrorCode.FATAL


async def test_a_call_whose_coroutine_is_closed_ends() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    running = Bench(tool(forever)).run("forever")
    running.send(None)
    running.close()
