"""An agent that is barred takes no message until every reason for it is gone, and then takes them in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId

from stagebell.runtime.engine.activation import Activation
from tests.support.agents import Ask, Doing, Note, agent, host
from tests.support.waiting import turns_of_the_loop

pytestmark = pytest.mark.runtime


async def an_agent(runtime: Any, seen: list[str]) -> Activation:
    async def hear(agent: Doing, message: Any, ctx: MessageContext) -> str:
        seen.append(type(message).__name__)
        return "heard"

    await host(runtime, "one", hear, hear, topics=("news",))
    await runtime.send_message(Ask(), agent("one"))
    seen.clear()
    activation: Activation = runtime._catalog.types["one"].live["default"]
    return activation


async def test_messages_wait_until_each_reason_is_gone(runtime: Any) -> None:
    seen: list[str] = []
    activation, dispatcher = await an_agent(runtime, seen), runtime._dispatcher
    dispatcher.bar(activation, "one")
    dispatcher.bar(activation, "two")
    await runtime.publish_message(Note(), TopicId("news", "default"))
    call = asyncio.create_task(runtime.send_message(Ask(), agent("one")))
    await turns_of_the_loop()
    dispatcher.unbar(activation, "one")
    await turns_of_the_loop()
    assert seen == []
    assert not call.done()
    dispatcher.unbar(activation, "two")
    assert await asyncio.wait_for(call, 2) == "heard"
    assert seen == ["Note", "Ask"]


async def test_a_reason_that_is_not_there_changes_nothing(runtime: Any) -> None:
    seen: list[str] = []
    activation, dispatcher = await an_agent(runtime, seen), runtime._dispatcher
    dispatcher.unbar(activation, "none")
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("one")), 2) == "heard"
