"""Agents that cannot close: the others do, and what went wrong is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stagebell import LocalRuntime
from tests.support.agents import Ask, Doing, agent

pytestmark = pytest.mark.runtime


async def raises() -> None:
    raise ValueError("cannot close")


async def awaits_what_it_cancelled() -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


@pytest.mark.parametrize(
    ("close", "error", "text"),
    [(raises, ValueError, "cannot close"), (awaits_what_it_cancelled, RuntimeError, "awaited something")],
)
async def test_agents_that_cannot_close_keep_no_other_from_closing(
    caplog: pytest.LogCaptureFixture, close: Callable[[], Awaitable[None]], error: type[Exception], text: str
) -> None:
    closed: list[str] = []

    class Closing(Doing):
        async def close(self) -> None:
            closed.append(self.id.key)
            if self.id.key != "0":
                await close()

    runtime = LocalRuntime()
    await Closing.register(runtime, "closing", lambda: Closing())
    runtime.start()
    for key in "120":
        await runtime.send_message(Ask(), agent("closing", key))
    with pytest.raises(error, match=text):
        await runtime.close()
    assert sorted(closed) == ["0", "1", "2"]
    assert "closing/2 could not be closed either" in caplog.text


async def test_whoever_gives_up_closing_is_not_kept_by_an_agent_that_closes() -> None:
    class Closing(Doing):
        async def close(self) -> None:
            await asyncio.Event().wait()

    runtime = LocalRuntime()
    await Closing.register(runtime, "closing", lambda: Closing())
    runtime.start()
    await runtime.send_message(Ask(), agent("closing"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.close(), 0.01)
