"""AgentChat's teams take the runtime as it is; a scripted model stands in for a real one."""

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat

from stagebell import LocalRuntime
from stagebell.testing import ScriptedModel

pytestmark = pytest.mark.runtime


async def test_two_assistants_take_turns() -> None:
    writer = AssistantAgent("writer", ScriptedModel(["A haiku."]))
    critic = AssistantAgent("critic", ScriptedModel(["Too short."]))
    async with LocalRuntime() as runtime:
        team = RoundRobinGroupChat([writer, critic], max_turns=2, runtime=runtime)
        result = await team.run(task="Write a haiku.")
    assert [message.source for message in result.messages] == ["user", "writer", "critic"]
