"""A round-robin team of AgentChat, with a model that needs no key: its answers are written here."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat

from stagebell import LocalRuntime
from stagebell.testing import ScriptedModel

WRITER = ScriptedModel(["The bell rings.", "On the empty stage, the bell rings twice."])
CRITIC = ScriptedModel(["Where? How often?", "Much better. APPROVE"])


async def write(task: str) -> TaskResult:
    async with LocalRuntime() as runtime:
        team = RoundRobinGroupChat(
            [
                AssistantAgent("writer", WRITER, system_message="Write one line of a poem."),
                AssistantAgent("critic", CRITIC, system_message="Criticise it, or say APPROVE."),
            ],
            termination_condition=TextMentionTermination("APPROVE"),
            runtime=runtime,
        )
        return await team.run(task=task)


async def main() -> None:
    result = await write("A line about a bell, please.")
    for message in result.messages:
        print(f"{message.source}: {message.to_text()}")
    print(f"stopped: {result.stop_reason}")


if __name__ == "__main__":
    asyncio.run(main())
