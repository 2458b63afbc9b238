"""Agents that write down what they were told, for worker processes that are killed, frozen and cut off.

A client numbers the messages it sends to each analyser, an analyser those it sends to each collector and
tally. Everybody keeps the numbers of each sender, in the order in which they came, in its state: when they
are 1, 2, 3, … everywhere, each message took effect exactly once and in order.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from autogen_core import (
    AgentId,
    AgentRuntime,
    ClosureAgent,
    ClosureContext,
    MessageContext,
    RoutedAgent,
    TopicId,
    TypeSubscription,
    event,
    message_handler,
    rpc,
    try_get_known_serializers_for_type,
)
from pydantic import BaseModel

from stagebell import DeferredReply, Timers, defer_reply
from tests.failure.charging import till
from tests.failure.office import office
from tests.failure.runners import runners

COLLECTORS = 5
LARGE = "x" * 2_000_000
FILES, DONE, EVENTS, ALARMS = "files", "done", "events", "alarms"


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


# -- agents that fail in one way each


class Hop(BaseModel):
    """A call that goes on along the agents `to`, after `pause` seconds, at the last one after `last` more."""

    to: list[str] = []
    pause: float = 0.0
    last: float = 0.0


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
        return replies.get(message.kind, default)  # type: ignore[no-any-return]

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


def passers(name: str) -> Setup:
    """One type of agents that call on."""

    async def register(runtime: AgentRuntime) -> None:
        await Passer.register(runtime, name, Passer)

    return register


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


Setup = Callable[[AgentRuntime], Awaitable[None]]
SETUPS: dict[str, Setup] = {
    "office": office,
    "till": till,
    "audit": audit,
    "troubles": troubles,
    "desks": desks,
    "reminders": reminders,
    "bound": bound,
    "bound_callee": bound_callee,
    "visits": visits,
    "runners": runners,
    **{name: passers(name) for name in ("first", "second", "third")},
}
