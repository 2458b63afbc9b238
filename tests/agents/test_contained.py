"""Code of users that raises what would end more than its run: the run ends with a reason that names it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stagebell import LocalRuntime
from stagebell.messages.conversation import RunStatus, TerminationReason
from stagebell.testing import ScriptedModel
from tests.support.loops import host_model, run, says

pytestmark = pytest.mark.runtime


class Odd(BaseException):
    """No `Exception`."""


async def cancels_itself() -> None:
    """Cancel the task that this runs in, and wait."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(5)


async def cancels_itself_and_returns() -> None:
    """Cancel the task that this runs in, and be gone before that arrives."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def awaits_what_is_cancelled() -> None:
    """Wait for something that somebody cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def raises(error: BaseException) -> Any:
    """A coroutine function that raises this."""

    async def work() -> None:
        raise error

    return work


ODD = {
    "own class": (raises(Odd("boo")), "Odd"),
    "GeneratorExit": (raises(GeneratorExit()), "GeneratorExit"),
    "SystemExit": (raises(SystemExit(3)), "SystemExit"),
    "KeyboardInterrupt": (raises(KeyboardInterrupt()), "KeyboardInterrupt"),
    "group": (raises(BaseExceptionGroup("several", [Odd("boo")])), "BaseExceptionGroup"),
    "its own task": (cancels_itself, ""),
    "bare cancellation": (raises(asyncio.CancelledError()), ""),
    "cancelled future": (awaits_what_is_cancelled, ""),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("place", ["model", "deps", "instructions", "hooks"])
async def test_whatever_code_of_a_user_raises_ends_its_run(place: str, name: str) -> None:
    work, said = ODD[name]

    async def function(*_: Any) -> Any:
        await work()

    options: dict[str, Any] = {} if place == "model" else {place: [function] if place == "hooks" else function}
    model = ScriptedModel(function) if place == "model" else says("never")
    async with LocalRuntime() as runtime:
        await host_model(runtime, model, **options)
        await host_model(runtime, says("fine"), "other")
        result = await run(runtime)
        assert (result.status, result.reason) == (RunStatus.FAILED, TerminationReason.MODEL_ERROR)
        assert said in result.text
        assert (await run(runtime, type="other")).output == "fine"  # the runtime is as it was


async def test_a_cancellation_that_comes_too_late_disturbs_nobody() -> None:
    async def instructions(_: Any) -> str:
        await cancels_itself_and_returns()
        return "be brief"

    async with LocalRuntime() as runtime:
        await host_model(runtime, says("fine", "again"), instructions=instructions)
        assert (await run(runtime)).output == "fine"
        assert (await run(runtime)).output == "again"
