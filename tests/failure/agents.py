"""Agents that write down what they were told, for worker processes that are killed, frozen and cut off.

A client numbers the messages it sends to each analyser, an analyser those it sends to each collector and
tally. Everybody keeps the numbers of each sender, in the order in which they came, in its state: when they
are 1, 2, 3, … everywhere, each message took effect exactly once and in order.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from autogen_core import (
    AgentId,
    AgentRuntime,
    MessageContext,
    RoutedAgent,
    TopicId,
    TypeSubscription,
    event,
    message_handler,
    rpc,
)
from pydantic import BaseModel

COLLECTORS = 5
FILES, DONE = "files", "done"

Setup = Callable[[AgentRuntime], Awaitable[None]]  # registers agents


class File(BaseModel):
    """From a client to an analyser; `pause` in seconds is how long the handler waits."""

    sender: str
    number: int
    pause: float = 0.0


class Measure(File):
    """The same as a call."""


class Measured(BaseModel):
    """The reply: the number, and what the collector answered."""

    number: int
    noted: int
    pid: int = 0


class Noted(BaseModel):
    """From an analyser to a collector (a call) or a tally (a publish), numbered for each receiver."""

    sender: str
    number: int


class Count(BaseModel):
    """How many messages the receiver has had; or how many agents a call went through, and in which processes."""

    count: int
    pids: list[int] = []


class Recorder(RoutedAgent):
    """Keeps the numbers that came from each sender, and how many it has sent to each receiver."""

    def __init__(self) -> None:
        super().__init__("keeps the numbers of each sender")
        self.heard: dict[str, list[int]] = {}
        self.sent: dict[str, int] = {}

    def hear(self, message: File | Noted) -> int:
        numbers = self.heard.setdefault(message.sender, [])
        numbers.append(message.number)
        return sum(map(len, self.heard.values()))

    def next_for(self, receiver: str) -> int:
        self.sent[receiver] = self.sent.get(receiver, 0) + 1
        return self.sent[receiver]

    async def save_state(self) -> Mapping[str, Any]:
        return {"heard": self.heard, "sent": self.sent}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.heard = {sender: list(numbers) for sender, numbers in state["heard"].items()}
        self.sent = dict(state["sent"])


class Analyser(Recorder):
    """Tells a collector by a call and a tally by a publish of each message it gets."""

    @event
    async def on_file(self, message: File, ctx: MessageContext) -> None:
        await self._analyse(message)

    @message_handler(match=lambda message, ctx: isinstance(message, Measure))
    async def on_measure(self, message: Measure, ctx: MessageContext) -> Measured:
        return Measured(number=message.number, noted=await self._analyse(message), pid=os.getpid())

    async def _analyse(self, message: File) -> int:
        name = self.id.key
        total = self.hear(message)
        tally = f"t{total % COLLECTORS}"
        await self.publish_message(Noted(sender=name, number=self.next_for(tally)), TopicId(DONE, tally))
        if message.pause:
            await asyncio.sleep(message.pause)
        collector = f"c{(total + message.number) % COLLECTORS}"
        note = Noted(sender=name, number=self.next_for(collector))
        answer: Count = await self.send_message(note, AgentId("collector", collector))
        return answer.count


class Collector(Recorder):
    """Serial, with state, called by all analysers."""

    @rpc
    async def on_note(self, message: Noted, ctx: MessageContext) -> Count:
        return Count(count=self.hear(message))


class Tally(Recorder):
    """Hears what analysers publish."""

    @event
    async def on_note(self, message: Noted, ctx: MessageContext) -> None:
        self.hear(message)


async def audit(runtime: AgentRuntime) -> None:
    """Analysers that call collectors and publish to tallies."""
    await Analyser.register(runtime, "analyser", Analyser)
    await Collector.register(runtime, "collector", Collector)
    await Tally.register(runtime, "tally", Tally)
    await runtime.add_subscription(TypeSubscription(FILES, "analyser"))
    await runtime.add_subscription(TypeSubscription(DONE, "tally"))
