"""What can be decided by a rule is decided by one: an agent routes, checks and formats, and a model gets the rest."""

import re
from dataclasses import dataclass

import pytest
from autogen_core import AgentId, FunctionCall, MessageContext, RoutedAgent, message_handler

from stagebell import LocalRuntime, ModelAgent, Task, ToolAgent, tool
from stagebell.testing import ScriptedModel

pytestmark = pytest.mark.runtime

NUMBER = re.compile(r"where is order (\d+)\?", re.IGNORECASE)


@dataclass
class Question:
    text: str


@tool(effects="none")
async def where(order: int) -> str:
    """Where an order is."""
    return f"order {order} is on its way"


class Desk(RoutedAgent):
    """Answers what it knows by itself, and hands on what has to be understood."""

    def __init__(self) -> None:
        super().__init__("Takes questions.")

    @message_handler
    async def on_question(self, message: Question, ctx: MessageContext) -> str:
        asked = NUMBER.fullmatch(message.text)
        if asked is None:
            result = await self.send_message(Task(content=message.text), AgentId("helper", self.id.key))
            return str(result.output)
        call = FunctionCall(id="1", name="where", arguments=f'{{"order": {asked[1]}}}')
        found = await self.send_message(call, AgentId("tools", "desk"))
        return str(found.content)


async def test_a_question_that_a_rule_can_answer_asks_no_model() -> None:
    model = ScriptedModel(["Sorry to hear that. A refund is on its way."])
    async with LocalRuntime() as runtime:
        await Desk.register(runtime, "desk", Desk)
        await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Looks up orders.", [where]))
        await ModelAgent.register(runtime, "helper", lambda: ModelAgent(model))
        desk = AgentId("desk", "ada")
        assert await runtime.send_message(Question("Where is order 7?"), desk) == "order 7 is on its way"
        assert len(model.requests) == 0
        assert (await runtime.send_message(Question("My tea is cold!"), desk)).startswith("Sorry to hear that")
        assert len(model.requests) == 1
