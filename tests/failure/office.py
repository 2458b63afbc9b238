"""Agents that tell themselves and others what is next, and one that waits for a person's agreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from autogen_core import AgentId, AgentRuntime, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import DeferredReply, Timers, defer_reply
from stagebell.messages.tool_calls import ToolCall
from stagebell.tools.approval_messages import ApprovalDecision, ApprovalRequest
from stagebell.tools.approvals import ask_for_approval, register_desk


class Walk(BaseModel):
    """A call to a walker, and then what it tells itself: so many steps are left."""

    steps: int


class Stamp(BaseModel):
    """Told to a porter at each step."""

    number: int


class Agree(BaseModel):
    """A call to an asker, which answers when a person has decided."""

    id: str


class Done(BaseModel):
    """The answer."""

    text: str


class Walker(RoutedAgent):
    """Goes on step by step, each one a turn that tells it to make the next."""

    def __init__(self) -> None:
        super().__init__("walks")
        self.handle = ""
        self.steps: list[int] = []

    @message_handler
    async def on_walk(self, message: Walk, ctx: MessageContext) -> Done | None:
        if not self.handle:
            self.handle = str(defer_reply())
        self.steps.append(message.steps)
        timers = cast(Timers, self.runtime)
        await timers.schedule(Stamp(number=message.steps), AgentId("stamps", self.id.key), delay=0)
        if message.steps:
            await timers.schedule(Walk(steps=message.steps - 1), self.id, delay=0)
        else:
            await DeferredReply(self.handle).answer(Done(text=f"{len(self.steps)} steps"))
        return None

    async def save_state(self) -> Mapping[str, Any]:
        return {"handle": self.handle, "steps": self.steps}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.handle, self.steps = state["handle"], list(state["steps"])


class Stamps(RoutedAgent):
    """Keeps the numbers in the order in which they came."""

    def __init__(self) -> None:
        super().__init__("stamps")
        self.numbers: list[int] = []

    @message_handler
    async def on_stamp(self, message: Stamp, ctx: MessageContext) -> None:
        self.numbers.append(message.number)

    async def save_state(self) -> Mapping[str, Any]:
        return {"numbers": self.numbers}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.numbers = list(state["numbers"])


class Asker(RoutedAgent):
    """Asks a person, and answers with what was decided."""

    def __init__(self) -> None:
        super().__init__("asks")
        self.waiting: dict[str, str] = {}
        self.decided: list[str] = []

    @message_handler
    async def on_agree(self, message: Agree, ctx: MessageContext) -> Done | None:
        self.waiting[message.id] = str(defer_reply())
        call = ToolCall(id="c1", name="refund")
        await ask_for_approval(self.runtime, ApprovalRequest(id=message.id, run_id="r1", call=call, agent=str(self.id)))
        return None

    @message_handler
    async def on_decision(self, message: ApprovalDecision, ctx: MessageContext) -> None:
        self.decided.append(message.verdict)
        await DeferredReply(self.waiting.pop(message.id)).answer(Done(text=f"{message.verdict} by {message.by}"))

    async def save_state(self) -> Mapping[str, Any]:
        return {"waiting": self.waiting, "decided": self.decided}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.waiting, self.decided = dict(state["waiting"]), list(state["decided"])


async def office(runtime: AgentRuntime) -> None:
    """All of them."""
    await Walker.register(runtime, "walker", Walker)
    await Stamps.register(runtime, "stamps", Stamps)
    await Asker.register(runtime, "asker", Asker)
    await register_desk(runtime)
