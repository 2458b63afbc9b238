"""An agent class in two versions, whose states differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_core import MessageContext, RoutedAgent, message_handler

from stagebell import agent_options, migrates
from tests.support.agents import Ask, Note


class Till(RoutedAgent):
    """Adds up, as its first version did."""

    def __init__(self) -> None:
        super().__init__("adds up")
        self.state: dict[str, Any] = {"sum": 0, "currency": "EUR"}

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> int:
        return await self.add(message.number)

    @message_handler
    async def on_note(self, message: Note, ctx: MessageContext) -> None:
        await self.add(message.number)

    async def add(self, number: int) -> int:
        self.state["sum"] += number
        return int(self.state["sum"])

    async def save_state(self) -> Mapping[str, Any]:
        return dict(self.state)

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)


@agent_options(state_version=2, state_type="Till")
class Till2(Till):
    """Its second version counts in cents."""

    def __init__(self) -> None:
        super().__init__()
        self.state = {"cents": 0}

    async def add(self, number: int) -> int:
        self.state["cents"] += number * 100
        return int(self.state["cents"])

    @staticmethod
    @migrates(from_version=1)
    def _in_cents(state: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"cents": state["sum"] * 100}
