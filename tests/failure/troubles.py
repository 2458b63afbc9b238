"""Agents that fail in one way each, slow ones, and those that are bound to their process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from autogen_core import (
    AgentId,
    AgentRuntime,
    ClosureAgent,
    ClosureContext,
    MessageContext,
    TopicId,
    TypeSubscription,
    message_handler,
    try_get_known_serializers_for_type,
)
from pydantic import BaseModel

from tests.failure.agents import DONE, Count, File, Measured, Noted, Recorder, Tally
from tests.failure.hopping import Hopper

LARGE = "x" * 2_000_000
EVENTS, ALARMS = "events", "alarms"


class Trouble(BaseModel):
    """A call or publish to an agent that gets into trouble of this kind."""

    kind: str
    number: int = 0


class Weird(BaseModel):
    """A reply that no client knows."""

    text: str = "?"


class Empty(Exception):
    """An exception without a text."""


class NoOneKnows(BaseModel):
    """A message that nobody here registered."""

    text: str = ""


class Troubled(Recorder):
    """Gets into trouble on demand, after it has changed its state and published."""

    def __init__(self) -> None:
        super().__init__()
        self.ballast = ""
        self.spoilt = False

    @message_handler
    async def on_trouble(self, message: Trouble, ctx: MessageContext) -> Count | Weird | str:
        self.heard.setdefault(message.kind, []).append(message.number)
        note = Noted(sender=self.id.key, number=message.number)
        await self.publish_message(note, TopicId(DONE, "trouble"))
        self._break(message)
        if message.kind == "exit later":
            await asyncio.sleep(0.05)
            os._exit(1)
        if message.kind == "large publish":
            await self.publish_message(Weird(text=LARGE), TopicId(DONE, "trouble"))
        if message.kind == "strange publish":
            await self.publish_message(NoOneKnows(), TopicId(DONE, "trouble"))
        replies: dict[str, Any] = {
            "large reply": LARGE,
            "strange reply": NoOneKnows(),
            "unknown reply": Weird(),
        }
        default = Count(count=sum(map(len, self.heard.values())))
        return replies.get(message.kind, default)

    def _break(self, message: Trouble) -> None:
        match message.kind:
            case "ValueError":
                raise ValueError(f"number {message.number} is no good")
            case "empty":
                raise Empty
            case "exit":
                os._exit(1)
            case "large state":
                self.ballast = LARGE
            case "bad state":
                self.spoilt = True

    async def save_state(self) -> Mapping[str, Any]:
        if self.spoilt:
            raise RuntimeError("this state cannot be saved")
        return {**await super().save_state(), "ballast": self.ballast}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        await super().load_state(state)
        self.ballast = state["ballast"]


class Slow(Recorder):
    """Waits in the middle of its turn, and publishes after that."""

    @message_handler
    async def on_measure(self, message: File, ctx: MessageContext) -> Measured:
        noted = self.hear(message)
        await asyncio.sleep(message.pause)
        await self.publish_message(Noted(sender=self.id.key, number=self.next_for("slow")), TopicId(DONE, "slow"))
        return Measured(number=message.number, noted=noted, pid=os.getpid())


async def troubles(runtime: AgentRuntime) -> None:
    """Agents that get into trouble, or are slow."""
    await Hopper.register(runtime, "hopper", Hopper)
    await Troubled.register(runtime, "troubled", Troubled)
    await Slow.register(runtime, "slow", Slow)
    await Tally.register(runtime, "tally", Tally)
    await runtime.add_subscription(TypeSubscription(DONE, "tally"))
    await runtime.add_subscription(TypeSubscription(EVENTS, "slow"))
    await runtime.add_subscription(TypeSubscription(ALARMS, "troubled"))


async def bound(runtime: AgentRuntime) -> None:
    """A type bound to its process: each event goes on, with the process's number, to a tally elsewhere."""

    async def on_file(context: ClosureContext, message: File, ctx: MessageContext) -> None:
        await context.publish_message(Noted(sender=str(os.getpid()), number=message.number), TopicId(DONE, "bound"))

    runtime.add_message_serializer(try_get_known_serializers_for_type(Noted))
    await ClosureAgent.register_closure(
        runtime, "desk", on_file, subscriptions=lambda: [TypeSubscription("desk", "desk")]
    )


async def bound_callee(runtime: AgentRuntime) -> None:
    """A slow agent, registered as an instance, so bound to its process."""
    for sent in (Noted, Measured):
        runtime.add_message_serializer(try_get_known_serializers_for_type(sent))
    await Slow().register_instance(runtime, AgentId("counter", "default"))
    await runtime.add_subscription(TypeSubscription("counter", "counter"))
