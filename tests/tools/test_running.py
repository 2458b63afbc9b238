"""Work for others runs in the task of whoever waits, and is cancelled alone."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import Any

import pytest
from autogen_core import CancellationToken

from stagebell.tools.running import OutOfTime, Stop, run_limited
from tests.support.waiting import eventually

pytestmark = pytest.mark.unit

seen: ContextVar[str] = ContextVar("seen", default="")


async def limited(work: Any, *, token: CancellationToken | None = None, seconds: float | None = None) -> Any:
    return await run_limited(work, "it", token=CancellationToken(), stop=Stop(token), seconds=seconds)


async def test_work_that_waits_for_nothing_needs_no_task() -> None:
    async def quick() -> Any:
        seen.set("inside")
        return asyncio.current_task()

    before = asyncio.all_tasks()
    assert await limited(quick(), seconds=5) is asyncio.current_task()
    assert asyncio.all_tasks() == before
    assert seen.get() == ""


async def test_what_it_returns_and_raises() -> None:
    async def slow(error: Exception | None) -> str:
        await asyncio.sleep(0)
        seen.set("inside")
        await asyncio.sleep(0.001)
        if error is not None:
            raise error
        return seen.get()

    assert await limited(slow(None), seconds=5) == "inside"
    with pytest.raises(KeyError):
        await limited(slow(KeyError("x")))


async def test_a_time_out_of_its_own_is_its_own() -> None:
    async def patient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            await asyncio.sleep(0.001)
            return "gave up"
        return ""

    token = CancellationToken()
    assert await limited(patient(), token=token, seconds=5) == "gave up"
    assert asyncio.current_task().cancelling() == 0


async def test_a_group_of_its_own_fails_alone() -> None:
    async def broken() -> None:
        raise ValueError("no")

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(broken())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await limited(group(), seconds=5)


@pytest.mark.parametrize("how", ["token", "time"])
async def test_it_is_cancelled_and_the_task_is_not(how: str) -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("ended")

    token = CancellationToken()
    if how == "token":
        asyncio.get_running_loop().call_later(0.02, token.cancel)
    with pytest.raises(asyncio.CancelledError if how == "token" else OutOfTime):
        await limited(slow(), token=token, seconds=None if how == "token" else 0.02)
    assert ended == ["ended"]
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(0.001)


async def test_a_time_out_around_it_is_a_time_out() -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as caught:
        await asyncio.wait_for(limited(slow(), token=CancellationToken(), seconds=5), 0.02)
    assert not isinstance(caught.value, OutOfTime)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await limited(slow(), token=CancellationToken(), seconds=5)


async def test_what_goes_on_is_left_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("stagebell.tools.running.GRACE", 0.05)
    gate, ended = asyncio.Event(), list[str]()

    async def stubborn() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                ended.append("swallowed")
        await asyncio.sleep(0)
        ended.append("ended")

    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.01, token.cancel)
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await limited(stubborn(), token=token)
    assert "swallows" in caplog.text
    assert ended == ["swallowed"]
    gate.set()
    await eventually(lambda: ended == ["swallowed", "ended"], 5)


async def test_a_value_after_the_cancellation_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def deaf() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "what?"
        return ""

    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.01, token.cancel)
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await limited(deaf(), token=token)
    assert "returned a value" in caplog.text


async def test_a_token_cancelled_from_a_thread_ends_it() -> None:
    token = CancellationToken()

    async def slow() -> None:
        await asyncio.Event().wait()

    asyncio.get_running_loop().call_later(0.01, lambda: asyncio.get_running_loop().run_in_executor(None, token.cancel))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(limited(slow(), token=token), 5)
