"""Runtimes with one namespace are workers of one application: each agent lives in one of them at a time."""

import asyncio

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler
from pydantic import BaseModel

from stagebell import RedisRuntime

pytestmark = pytest.mark.integration


class WhoRunsYou(BaseModel):
    pass


class Member(RoutedAgent):
    def __init__(self, worker: str) -> None:
        super().__init__("says which worker runs it")
        self.worker = worker

    @message_handler
    async def tell(self, message: WhoRunsYou, ctx: MessageContext) -> str:
        return self.worker


async def ask_everybody(runtime: RedisRuntime) -> list[str]:
    members = (AgentId("member", str(number)) for number in range(40))
    return await asyncio.gather(*(runtime.send_message(WhoRunsYou(), member) for member in members))


async def test_every_agent_gives_the_same_answer_to_whoever_asks(redis_url: str, namespace: str) -> None:
    async with RedisRuntime(redis_url, namespace=namespace) as one:
        async with RedisRuntime(redis_url, namespace=namespace) as two:
            await Member.register(one, "member", lambda: Member("one"))
            await Member.register(two, "member", lambda: Member("two"))
            seen_by_one = await ask_everybody(one)
            seen_by_two = await ask_everybody(two)
    assert set(seen_by_one) <= {"one", "two"}
    assert seen_by_one == seen_by_two
