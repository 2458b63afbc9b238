"""Agents that call on along a path, in their own type or through any."""

from __future__ import annotations

import asyncio
import os

from autogen_core import AgentId, AgentRuntime, MessageContext, rpc
from pydantic import BaseModel

from tests.failure.agents import Count, Recorder, Setup


class Hop(BaseModel):
    """A call that goes on along the agents `to`, after `pause` seconds, at the last one after `last` more."""

    to: list[str] = []
    pause: float = 0.0
    last: float = 0.0


class Hopper(Recorder):
    """Calls on, along a path of agents of its own type."""

    @rpc
    async def on_hop(self, message: Hop, ctx: MessageContext) -> Count:
        self.next_for("anybody")
        if message.pause:
            await asyncio.sleep(message.pause)
        if not message.to:
            await asyncio.sleep(message.last)
            return Count(count=1, pids=[os.getpid()])
        rest = Hop(to=message.to[1:], pause=message.pause, last=message.last)
        answer: Count = await self.send_message(rest, AgentId("hopper", message.to[0]))
        return Count(count=answer.count + 1, pids=[os.getpid(), *answer.pids])


class Passer(Recorder):
    """Calls on, along a path of agents of any type ("type/key")."""

    @rpc
    async def on_hop(self, message: Hop, ctx: MessageContext) -> Count:
        self.next_for("anybody")
        if message.pause:
            await asyncio.sleep(message.pause)
        if not message.to:
            return Count(count=1)
        answer: Count = await self.send_message(Hop(to=message.to[1:]), AgentId.from_str(message.to[0]))
        return Count(count=answer.count + 1)


def passers(name: str) -> Setup:
    """One type of agents that call on."""

    async def register(runtime: AgentRuntime) -> None:
        await Passer.register(runtime, name, Passer)

    return register
