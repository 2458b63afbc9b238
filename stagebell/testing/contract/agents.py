"""The agents of the contract: one does what the case hands it as a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from autogen_core import (
    AgentId,
    AgentRuntime,
    AgentType,
    MessageContext,
    RoutedAgent,
    TypeSubscription,
    event,
    message_handler,
    rpc,
)
from pydantic import BaseModel


class Ask(BaseModel):
    """A call."""

    text: str = ""
    number: int = 0


class Answer(BaseModel):
    """What a call may be answered with."""

    text: str = ""
    number: int = 0


class Note(BaseModel):
    """A publish."""

    text: str = ""
    number: int = 0


class Unknown(BaseModel):
    """A message that no agent here handles."""

    text: str = ""


OnAsk = Callable[["Doing", Ask, MessageContext], Awaitable[Any]]
OnNote = Callable[["Doing", Note, MessageContext], Awaitable[None]]


async def _nothing(*_: Any) -> None:
    return None


class Doing(RoutedAgent):
    """Answers a call with what one function returns, and hands publishes to another."""

    def __init__(self, ask: OnAsk = _nothing, note: OnNote = _nothing) -> None:
        super().__init__("does what the test says")
        self.do_ask = ask
        self.do_note = note
        self.closed = 0
        self.words: list[str] = []

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> Any:
        return await self.do_ask(self, message, ctx)

    @message_handler
    async def on_note(self, message: Note, ctx: MessageContext) -> None:
        await self.do_note(self, message, ctx)

    @message_handler
    async def on_answer(self, message: Answer, ctx: MessageContext) -> Answer:
        return message

    async def close(self) -> None:
        self.closed += 1

    async def call(self, other: AgentId | str, text: str = "", number: int = 0) -> Any:
        """Call another agent from within a handler."""
        agent = other if isinstance(other, AgentId) else AgentId(other, "default")
        return await self.send_message(Ask(text=text, number=number), agent)


class OnlyEvents(RoutedAgent):
    """Handles publishes of a type, and no calls with it."""

    def __init__(self) -> None:
        super().__init__("publishes only")
        self.seen: list[str] = []

    @event
    async def on_note(self, message: Note, ctx: MessageContext) -> None:
        self.seen.append(message.text)


class OnlyCalls(RoutedAgent):
    """Handles calls of a type, and no publishes of it."""

    def __init__(self) -> None:
        super().__init__("calls only")

    @rpc
    async def on_note(self, message: Note, ctx: MessageContext) -> str:
        return "called"


class Counting(RoutedAgent):
    """Counts its messages and keeps the count as its state."""

    def __init__(self) -> None:
        super().__init__("counts")
        self.count = 0

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> int:
        self.count += 1
        return self.count

    async def save_state(self) -> Mapping[str, Any]:
        return {"count": self.count}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.count = int(state.get("count", 0))


async def host(
    runtime: AgentRuntime,
    name: str,
    ask: OnAsk = _nothing,
    note: OnNote = _nothing,
    *,
    topics: tuple[str, ...] = (),
    cls: type[Doing] = Doing,
) -> AgentType:
    """Register an agent type that does what the functions say, subscribed to topic types."""
    agent_type = await cls.register(runtime, name, lambda: cls(ask, note))
    for topic in topics:
        await runtime.add_subscription(TypeSubscription(topic, name))
    return agent_type


def collect(into: list[Any]) -> OnNote:
    """Handle publishes by collecting their texts."""

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        into.append(message.text)

    return note


async def echo(agent: Doing, message: Ask, ctx: MessageContext) -> str:
    """Answer with the text of the call."""
    return message.text


def agent(name: str, key: str = "default") -> AgentId:
    """An agent's id."""
    return AgentId(name, key)
