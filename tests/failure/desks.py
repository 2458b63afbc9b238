"""Agents that answer later, those that ask them, and those that let a message come later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from autogen_core import AgentId, AgentRuntime, MessageContext, TopicId, TypeSubscription, rpc
from pydantic import BaseModel

from stagebell import DeferredReply, Timers, defer_reply
from tests.failure.agents import DONE, Collector, Count, Noted, Recorder, Tally


class Question(BaseModel):
    """A call that the desk answers later."""

    number: int = 1


class Inquire(BaseModel):
    """A call to somebody who asks the desk."""

    desk: str


class Settle(BaseModel):
    """Tells the desk to answer all that is open; it says how many that were."""


class Desk(Recorder):
    """Answers later."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, int] = {}

    @rpc
    async def on_question(self, message: Question, ctx: MessageContext) -> Count | None:
        self.open[defer_reply()] = message.number
        self.next_for("questions")
        return None

    @rpc
    async def on_settle(self, message: Settle, ctx: MessageContext) -> Count:
        answered, self.open = self.open, {}
        for handle, number in answered.items():
            await DeferredReply(handle).answer(Count(count=number * 10))
            await self.publish_message(
                Noted(sender=self.id.key, number=self.next_for("answers")), TopicId(DONE, "desk")
            )
        return Count(count=len(answered))

    async def save_state(self) -> Mapping[str, Any]:
        return {**await super().save_state(), "open": self.open}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        await super().load_state(state)
        self.open = dict(state["open"])


class Inquirer(Recorder):
    """Asks the desk, and waits for its answer."""

    @rpc
    async def on_inquire(self, message: Inquire, ctx: MessageContext) -> Count:
        number = self.next_for(message.desk)
        answer: Count = await self.send_message(Question(number=number), AgentId("desk", message.desk))
        self.sent["answered"] = answer.count
        return answer


async def desks(runtime: AgentRuntime) -> None:
    """Agents that answer later, and those that ask them."""
    await Desk.register(runtime, "desk", Desk)
    await Inquirer.register(runtime, "inquirer", Inquirer)
    await Tally.register(runtime, "tally", Tally)
    await runtime.add_subscription(TypeSubscription(DONE, "tally"))


class Remind(BaseModel):
    """Lets a note come later, to a collector and to a tally."""

    delay: float


class Reminder(Recorder):
    """Sets timers inside a turn."""

    @rpc
    async def on_remind(self, message: Remind, ctx: MessageContext) -> Count:
        timers = cast(Timers, self.runtime)
        for to in (AgentId("collector", "late"), TopicId(DONE, "late")):
            await timers.schedule(Noted(sender=self.id.key, number=self.next_for(str(to))), to, delay=message.delay)
        return Count(count=2)


async def reminders(runtime: AgentRuntime) -> None:
    """Agents that set timers, and those whom they reach."""
    await Reminder.register(runtime, "reminder", Reminder)
    await Collector.register(runtime, "collector", Collector)
    await Tally.register(runtime, "tally", Tally)
    await runtime.add_subscription(TypeSubscription(DONE, "tally"))
