"""An agent that answers later, and what tests do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from autogen_core import MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import DeferredReply, agent_options, defer_reply
from tests.support.agents import Answer, Ask, agent
from tests.support.waiting import turns_of_the_loop


class Release(BaseModel):
    """Answer what was asked under this text; with `error`, by failing."""

    text: str = ""
    answer: str = ""
    error: str = ""


class Desk(RoutedAgent):
    """Takes questions, and answers them when it is told to; what is open is its state."""

    def __init__(self) -> None:
        super().__init__("answers later")
        self.open: dict[str, str] = {}

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> Answer | None:
        if message.text == "at once":
            return Answer(text="here")
        self.open[message.text] = defer_reply()
        return None

    @message_handler
    async def on_release(self, message: Release, ctx: MessageContext) -> str:
        handle = DeferredReply(self.open[message.text])
        if message.error:
            await handle.fail(ValueError(message.error))
        else:
            await handle.answer(Answer(text=message.answer))
        return "released"

    async def save_state(self) -> Mapping[str, Any]:
        return {"open": self.open}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.open = dict(state["open"])


@agent_options(process_bound=True)
class BoundDesk(Desk):
    """The same, bound to its process."""


async def asked(runtime: Any, text: str, **options: Any) -> asyncio.Task[Any]:
    """A call that waits for its reply: its turn has ended."""
    call = asyncio.create_task(runtime.send_message(Ask(text=text), agent("desk"), **options))
    await settled(runtime)
    assert not call.done()
    return call


async def settled(runtime: Any) -> None:
    """The desk has handled what was sent before: calls are handled in order."""
    await turns_of_the_loop(3)
    assert (await runtime.send_message(Ask(text="at once"), agent("desk"))).text == "here"


async def release(runtime: Any, text: str, **how: str) -> Any:
    return await runtime.send_message(Release(text=text, **how), agent("desk"))


async def opened(runtime: Any) -> dict[str, str]:
    """What the desk has open."""
    state = await runtime.agent_save_state(agent("desk"))
    return dict(state["open"])
