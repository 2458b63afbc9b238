"""Who hears of a message that nobody will handle: its agent, if it wants to know, or whoever told it."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, TopicId, TypeSubscription, message_handler
from pydantic import BaseModel

from stagebell.errors import OutsideTurn
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.options import agent_options
from tests.support.waiting import eventually


class Job(BaseModel):
    name: str


class Order(BaseModel):
    """To the boss: tell the worker."""

    name: str


class Done(BaseModel):
    name: str


HEARD: list[tuple[str, SetAside]] = []


class Listener(RoutedAgent):
    """Keeps what it is told of messages that were set aside."""

    def __init__(self) -> None:
        super().__init__("listens")

    @message_handler
    async def on_set_aside(self, message: SetAside, ctx: MessageContext) -> None:
        HEARD.append((str(self.id), message))


@agent_options(retry=None)
class Worker(Listener):
    @message_handler
    async def on_job(self, message: Job, ctx: MessageContext) -> Done | Order:
        if message.name == "fails":
            raise ValueError("no way")
        return Done(name=message.name) if message.name == "well" else Order(name=message.name)


class Boss(Listener):
    @message_handler
    async def on_order(self, message: Order, ctx: MessageContext) -> None:
        await self.runtime.tell(Job(name=message.name), AgentId("worker", "w"), expects=Done)


@pytest.fixture
async def staffed(runtime: Any, start: Any) -> Any:
    """A runtime with a boss and a worker."""
    HEARD.clear()
    for name, cls in (("worker", Worker), ("boss", Boss), ("listener", Listener)):
        await cls.register(runtime, name, cls)
    await runtime.add_subscription(TypeSubscription("jobs", "worker"))
    return await start(runtime) or runtime


async def heard(number: int = 1) -> list[tuple[str, SetAside]]:
    """What was told, as soon as it is so much."""
    await eventually(lambda: len(HEARD) >= number)
    return HEARD


async def test_an_agent_hears_of_its_own_dead_letters(staffed: Any) -> None:
    await staffed.publish_message(Job(name="fails"), TopicId("jobs", "p"))
    await staffed.tell(Job(name="fails"), AgentId("worker", "t"))
    told = await heard(2)
    assert {agent for agent, _ in told} == {"worker/p", "worker/t"}
    for agent, word in told:
        assert (word.agent, word.type, word.data, word.error) == (agent, "Job", {"name": "fails"}, "ValueError")
        assert word.reason == "ValueError: no way"


@pytest.mark.parametrize(("name", "error"), [("fails", "ValueError"), ("odd", "CantHandle")])
async def test_who_expects_an_answer_hears_when_it_does_not_come(staffed: Any, name: str, error: str) -> None:
    """And its recipient does not: a message has one who hears of its end."""
    await staffed.send_message(Order(name=name), AgentId("boss", "b"))
    ((agent, word),) = await heard()
    assert (agent, word.agent, word.type, word.error) == ("boss/b", "worker/w", "Job", error)
    await staffed.send_message(Order(name="well"), AgentId("boss", "b"))
    await staffed.send_message(Order(name=name), AgentId("boss", "c"))
    assert [agent for agent, _ in await heard(2)] == ["boss/b", "boss/c"]


async def test_only_in_a_turn_is_there_somebody_to_hear(staffed: Any) -> None:
    with pytest.raises(OutsideTurn):
        await staffed.tell(Job(name="well"), AgentId("worker", "w"), expects=Done)


async def test_what_tells_of_the_end_of_a_message_ends_too(staffed: Any) -> None:
    """One that is set aside itself is told to nobody."""

    class Deaf(Listener):
        @message_handler
        async def on_job(self, message: Job, ctx: MessageContext) -> None:
            raise ValueError("no way")

        @message_handler
        async def on_set_aside(self, message: SetAside, ctx: MessageContext) -> None:
            HEARD.append((str(self.id), message))
            raise ValueError("not this either")

    await Deaf.register(staffed, "deaf", Deaf)
    await staffed.tell(Job(name="x"), AgentId("deaf", "d"))
    await heard()
    await staffed.tell(Job(name="fails"), AgentId("worker", "t"))
    await eventually(lambda: HEARD[-1][0] == "worker/t")
    assert {agent for agent, _ in HEARD} == {"deaf/d", "worker/t"}
