"""Two runtimes over one server, each with agent types of its own, and a handler that waits until it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import MessageContext

from stagebell import RedisRuntime
from tests.failure.view import View
from tests.support.agents import Doing
from tests.support.waiting import eventually


class Two:
    """The runtime of the callers, `near`, and that of the callees, `far`."""

    def __init__(self, near: RedisRuntime, far: RedisRuntime, view: View) -> None:
        self.near = near
        self.far = far
        self.view = view

    async def start(self) -> None:
        await asyncio.gather(self.near.start(), self.far.start())

    async def at_rest(self) -> None:
        """Nothing of any message is left, in the server and in memory."""
        await eventually(lambda: self.view.backlog() == 0, within=5)
        await eventually(lambda: not self.view.left_behind(), within=5)
        assert not self.view.against_the_list()


class Waiting:
    """What a handler that waits for ever has seen; `stubborn`: for how many cancellations it goes on."""

    def __init__(self, stubborn: int = 0) -> None:
        self.entered = asyncio.Event()
        self.tokens: list[bool] = []
        self.cancelled = 0
        self.stubborn = stubborn

    async def __call__(self, agent: Doing, message: Any, ctx: MessageContext) -> None:
        self.entered.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.tokens.append(ctx.cancellation_token.is_cancelled())
                self.cancelled += 1
                if self.cancelled > self.stubborn:
                    raise


async def cancelled(call: asyncio.Task[Any]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 5)
