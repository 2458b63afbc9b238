"""Random programs of agents that call and publish: whatever they do, the promises hold and nothing hangs.

Each program is drawn from a seed. Agents call each other in chains and in parallel, call back, publish, wait,
fail and are cut short by time-outs and tokens; the record of all turns is checked afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
from autogen_core import AgentId, CancellationToken, MessageContext, TopicId

from stagebell import LocalRuntime
from stagebell.errors import CallCycleError
from stagebell.runtime.engine.turn import Turn
from tests.support.agents import Ask, Doing, Note, host

pytestmark = pytest.mark.runtime

AGENTS = 5


class World:
    """The agents of one program and the record of what they did."""

    def __init__(self, seed: int, cuts: bool) -> None:
        self.random = random.Random(seed)
        self.cuts = cuts
        self.running: dict[AgentId, list[Turn]] = defaultdict(list)
        self.sent: dict[tuple[Any, Any, str], int] = defaultdict(int)
        self.seen: dict[tuple[Any, Any, str], int] = defaultdict(int)
        self.wrong: list[str] = []
        self.handled: dict[str, int] = defaultdict(int)
        self.published = 0

    async def ask(self, agent: Doing, message: Ask, ctx: MessageContext) -> int:
        self._arrived("call", agent.id, message)
        return await self._turn(agent, message.number, ctx)

    async def note(self, agent: Doing, message: Note, ctx: MessageContext) -> None:
        self._arrived("publish", agent.id, message)
        await self._turn(agent, message.number, ctx)

    def _arrived(self, kind: str, receiver: AgentId, message: Any) -> None:
        sender, number = message.text.rsplit("#", 1)
        lane = (sender, receiver, kind)
        # Calls that were withdrawn or refused leave gaps in the numbers, and nothing may pass another.
        if int(number) <= self.seen[lane]:
            self.wrong.append(f"{lane}: {number} came after {self.seen[lane]}")
        self.handled[kind] += 1
        self.seen[lane] = int(number)

    async def _turn(self, agent: Doing, budget: int, ctx: MessageContext) -> int:
        assert isinstance(ctx, Turn)
        below = self.running[agent.id]
        if below and not ctx.descends_from(below[-1]):
            self.wrong.append(f"two turns of {agent.id} overlap")
        below.append(ctx)
        task = asyncio.current_task()
        try:
            for _ in range(self.random.randrange(4)):
                await self._step(agent, ctx, budget)
                if asyncio.current_task() is not task and not ctx.cancelled:
                    self.wrong.append("the task changed under a handler")
            return budget
        finally:
            below.remove(ctx)

    async def _step(self, agent: Doing, ctx: Turn, budget: int) -> None:
        what = self.random.random()
        if what < 0.2 or budget == 0:
            await asyncio.sleep(0)
        elif what < 0.3:
            await asyncio.sleep(0.001)
        elif what < 0.55:
            await self._call(agent, ctx, budget)
        elif what < 0.8:
            lines = (self._calls(agent, ctx, budget) for _ in range(self.random.randrange(1, 4)))
            await asyncio.gather(*lines)
        elif what < 0.97:
            topic = TopicId("news", str(self.random.randrange(AGENTS)))
            receiver = AgentId("agent", topic.source)
            if receiver != agent.id:
                text = self._next(f"{id(ctx)}", receiver, "publish")
                self.published += 1
                await agent.publish_message(Note(text=text, number=budget - 1), topic)
        else:
            raise ValueError("on purpose")

    async def _calls(self, agent: Doing, ctx: Turn, budget: int) -> None:
        for _ in range(self.random.randrange(1, 3)):
            await self._call(agent, ctx, budget)

    async def _call(self, agent: Doing, ctx: Turn, budget: int) -> None:
        receiver = AgentId("agent", str(self.random.randrange(AGENTS)))
        limit = self.random.choice([0.0, 0.001, 0.01]) if self.cuts and self.random.random() < 0.3 else None
        with suppress(ValueError, CallCycleError, TimeoutError):
            if limit is not None and self.random.random() < 0.5:
                await self._send_with_token(agent, ctx, receiver, budget, limit)
                return
            async with asyncio.timeout(limit):
                await self._send(agent, ctx, receiver, budget)

    async def _send_with_token(self, agent: Doing, ctx: Turn, receiver: AgentId, budget: int, limit: float) -> None:
        token = CancellationToken()
        timer = asyncio.get_running_loop().call_later(limit, token.cancel)
        try:
            await self._send(agent, ctx, receiver, budget, token)
        except asyncio.CancelledError:
            if not token.is_cancelled() or ctx.cancelled:
                raise
        finally:
            timer.cancel()

    async def _send(
        self, agent: Doing, ctx: Turn, receiver: AgentId, budget: int, token: CancellationToken | None = None
    ) -> None:
        text = self._next(f"{id(ctx)}", receiver, "call")
        await agent.send_message(Ask(text=text, number=budget - 1), receiver, cancellation_token=token)

    def _next(self, sender: str, receiver: AgentId, kind: str) -> str:
        lane = (sender, receiver, kind)
        self.sent[lane] += 1
        return f"{sender}#{self.sent[lane]}"


async def run_program(seed: int, cuts: bool) -> World:
    world = World(seed, cuts)
    runtime = LocalRuntime(cancel_grace=0.05)
    await host(runtime, "agent", world.ask, world.note, topics=("news",))
    runtime.start()

    async def root(number: int) -> None:
        receiver = AgentId("agent", str(world.random.randrange(AGENTS)))
        text = world._next(f"root{number}", receiver, "call")
        with suppress(ValueError, CallCycleError, asyncio.CancelledError):
            await runtime.send_message(Ask(text=text, number=3), receiver)

    await asyncio.wait_for(asyncio.gather(*(root(number) for number in range(6))), 20)
    await asyncio.wait_for(runtime.stop_when_idle(), 20)
    assert not runtime._dispatcher.open
    assert runtime.unprocessed_messages_count == 0
    assert all(activation.top is None for activation in runtime._catalog.every_activation())
    await runtime.close()
    return world


@pytest.mark.parametrize("seed", range(40))
async def test_the_promises_hold_in_a_random_program(seed: int) -> None:
    world = await run_program(seed, cuts=False)
    assert not world.wrong
    assert world.handled["publish"] == world.published


@pytest.mark.parametrize("seed", range(40))
async def test_the_promises_hold_when_calls_are_cut_short(seed: int) -> None:
    world = await run_program(seed, cuts=True)
    assert not world.wrong
    assert world.handled["publish"] == world.published
