"""How the instance of an agent leaves memory: out of its activation at once, and closed once.

What holds at all times
    - Whoever takes an instance out of its activation calls `retire` (or is `Catalog.close`), and nobody else closes it.
    - It is closed when no turn of its agent is open: one that still runs its code ends first (`turn_ended`).
    - While it closes, messages of the agent wait (`Activation.making`), and the first of them gets a new instance.
    - An instance that is taken out while its state is still being loaded is closed by the one who makes it.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError, Future, Task
from collections.abc import Coroutine, Iterable
from contextvars import Context
from typing import Any

from autogen_core import Agent, AgentId, BaseAgent

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.turn import Turn

logger = logging.getLogger("stagebell")


class Retiring:
    """The instances of one runtime that are leaving; `open` are its turns that wait for something."""

    def __init__(self, open: Iterable[Turn]) -> None:
        self._open = open
        self._tasks: set[Task[None]] = set()
        self.aborted = False

    def retire(self, activation: Activation) -> None:
        """Take the instance out, if there is one, and close it as soon as no turn is open."""
        agent, activation.agent = activation.agent, None
        if agent is None or activation.making is not None:
            return
        if self._has_open_turn(activation):
            activation.retired = [*(activation.retired or ()), agent]
        else:
            self._close(activation, agent)

    def turn_ended(self, activation: Activation) -> None:
        """A turn of an agent with retired instances has ended."""
        if self._has_open_turn(activation) or _no_loop():
            return
        retired, activation.retired = activation.retired, None
        for agent in retired or ():
            self._close(activation, agent)

    async def finish(self) -> None:
        """Wait until everything that is leaving is closed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _has_open_turn(self, activation: Activation) -> bool:
        if activation.hosted.interleaved:
            return any(turn.activation is activation for turn in self._open)
        return activation.top is not None

    def _close(self, activation: Activation, agent: Agent) -> None:
        if self.aborted or _closes_nothing(agent):
            return
        closed: Future[None] | None = None
        if activation.making is None and activation.agent is None:
            closed = activation.making = asyncio.get_running_loop().create_future()
        self._spawn(self._close_now(activation, agent, closed))

    async def _close_now(self, activation: Activation, agent: Agent, closed: Future[None] | None) -> None:
        try:
            await close_logged(activation.id, agent)
        finally:
            if closed is not None:
                activation.making = None
                closed.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        # In no turn's context: what `close` sends is no part of the turn during which it happens to run.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def close_logged(id: AgentId, agent: Agent) -> None:
    """Close an instance; one that cannot is reported, and gone all the same."""
    try:
        await close_agent(agent)
    except Exception:
        logger.exception("%s could not be closed", id)


async def close_agent(agent: Agent) -> None:
    """Close an instance.

    Raises:
        Exception: what its `close` raised.
        asyncio.CancelledError: whoever closes it was cancelled; no other one, which would seem to be that.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        await agent.close()
    except CancelledError as error:
        if task is not None and task.cancelling() > before:
            raise
        raise RuntimeError("close() awaited something that was cancelled") from error


def _closes_nothing(agent: Agent) -> bool:
    return getattr(type(agent), "close", None) is BaseAgent.close


def _no_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False
