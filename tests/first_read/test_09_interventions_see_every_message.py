"""The application may look at every message, change it or drop it; several interventions work in order."""

from typing import Any

import pytest
from autogen_core import (
    AgentId,
    DefaultInterventionHandler,
    DropMessage,
    MessageContext,
    RoutedAgent,
    message_handler,
)
from autogen_core.exceptions import MessageDroppedException
from pydantic import BaseModel

from stagebell import LocalRuntime

pytestmark = pytest.mark.runtime


class Say(BaseModel):
    text: str


class Parrot(RoutedAgent):
    @message_handler
    async def repeat(self, message: Say, ctx: MessageContext) -> str:
        return message.text


class Censor(DefaultInterventionHandler):
    async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
        return DropMessage if "secret" in message.text else message


class Polite(DefaultInterventionHandler):
    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        return f"{message}, please"


async def test_a_message_is_dropped_and_a_reply_is_changed() -> None:
    async with LocalRuntime(intervention_handlers=[Censor(), Polite()]) as runtime:
        await Parrot.register(runtime, "parrot", lambda: Parrot("repeats"))
        parrot = AgentId("parrot", "default")
        assert await runtime.send_message(Say(text="tea"), parrot) == "tea, please"
        with pytest.raises(MessageDroppedException, match="Censor"):
            await runtime.send_message(Say(text="a secret"), parrot)
