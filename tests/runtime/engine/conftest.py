"""Fixtures of the engine's tests: the in-memory runtime with short limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from stagebell import LocalRuntime
from tests.support.agents import Doing, OnAsk, agent, host


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """A started runtime in which a cancelled handler has 50 ms of grace."""
    running = LocalRuntime(cancel_grace=0.05, stop_grace=0.2)
    running.start()
    yield running
    await running.close()


@pytest.fixture
def ready(runtime: LocalRuntime) -> Any:
    """Register an agent that is in memory already, so that a call to it runs in its caller's task."""

    async def ready(name: str, ask: OnAsk, *, cls: type[Doing] = Doing) -> None:
        await host(runtime, name, ask, cls=cls)
        await runtime.get(agent(name), lazy=False)

    return ready
