"""What is left of nested turns that fail: what their own nested turns did, which others have seen, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import RedisRuntime

pytestmark = pytest.mark.integration


class Step(BaseModel):
    """Handled by calling oneself with the rest; `fails` after that."""

    names: list[str]
    fails: list[str]


class Diary(RoutedAgent):
    """Notes what it does. Its state is the very list that it goes on with."""

    def __init__(self) -> None:
        super().__init__("a diary")
        self.lines: list[str] = []

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """Note the first name, call oneself with the others, note the end."""
        name, *rest = message.names
        self.lines.append(name)
        if rest:
            with suppress(ValueError):
                await self.send_message(Step(names=rest, fails=message.fails), self.id)
        self.lines.append(f"{name} ends")
        if name in message.fails:
            raise ValueError(name)

    async def save_state(self) -> Mapping[str, Any]:
        """The lines."""
        return {"lines": self.lines}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """The lines."""
        self.lines = list(state["lines"])


@pytest.mark.parametrize(
    ("fails", "lines"),
    [
        ([], ["outer", "middle", "inner", "inner ends", "middle ends", "outer ends"]),
        (["inner"], ["outer", "middle", "middle ends", "outer ends"]),
        (["middle"], ["outer", "middle", "inner", "inner ends", "outer ends"]),
        (["inner", "middle"], ["outer", "outer ends"]),
    ],
)
async def test_a_nested_turn_that_fails(redis_url: str, namespace: str, fails: list[str], lines: list[str]) -> None:
    async with RedisRuntime(redis_url, namespace=namespace) as runtime:
        await Diary.register(runtime, "diary", Diary)
        await runtime.send_message(Step(names=["outer", "middle", "inner"], fails=fails), AgentId("diary", "d"))
        assert await runtime.agent_save_state(AgentId("diary", "d")) == {"lines": lines}
