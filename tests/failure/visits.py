"""A host that visits several guests at once, each of which comes back while the host waits for it."""

from __future__ import annotations

import asyncio

from autogen_core import AgentId, AgentRuntime, MessageContext, rpc
from pydantic import BaseModel

from tests.failure.agents import Count, Recorder


class Round(BaseModel):
    """Asks the host to visit these guests at once; each comes back to the host, and goes on as `then` says."""

    guests: list[str]
    pauses: list[float] = []
    deep: bool = False


class Visit(BaseModel):
    """From the host to a guest, and from the guest back to the host."""

    guest: str
    pause: float = 0.0
    deep: bool = False


class Visitor(BaseModel):
    """A guest comes back to the host while the host waits for it."""

    guest: str
    deep: bool = False


class Host(Recorder):
    """Visits several guests at once, and is called back by each; counts what it does in its state."""

    @rpc
    async def on_round(self, message: Round, ctx: MessageContext) -> Count:
        self.next_for("round")
        pauses = message.pauses or [0.0] * len(message.guests)
        visits = (self._visit(*each, message.deep) for each in zip(message.guests, pauses, strict=True))
        counts = await asyncio.gather(*visits)
        self.next_for("home")
        return Count(count=sum(counts))

    async def _visit(self, guest: str, pause: float, deep: bool) -> int:
        self.next_for(f"to {guest}")
        answer: Count = await self.send_message(Visit(guest=guest, pause=pause, deep=deep), AgentId("guest", guest))
        self.next_for(f"from {guest}")
        return answer.count

    @rpc
    async def on_visitor(self, message: Visitor, ctx: MessageContext) -> Count:
        self.next_for(f"visitor {message.guest}")
        if message.deep:
            inner = f"{message.guest}-inner"
            await self._visit(inner, 0.0, False)
        return Count(count=1)


class Guest(Recorder):
    """Comes back to the host in the middle of its turn."""

    @rpc
    async def on_visit(self, message: Visit, ctx: MessageContext) -> Count:
        self.next_for("host")
        if message.pause:
            await asyncio.sleep(message.pause)
        visitor = Visitor(guest=message.guest, deep=message.deep)
        answer: Count = await self.send_message(visitor, AgentId("host", "h"))
        return answer


async def visits(runtime: AgentRuntime) -> None:
    """A host and its guests."""
    await Host.register(runtime, "host", Host)
    await Guest.register(runtime, "guest", Guest)
