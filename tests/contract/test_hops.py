"""Hop limits: how far one message may lead to others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId

import stagebell
from stagebell.errors import HopLimitExceeded
from tests.support.agents import Ask, Bound, Doing, Note, agent, echo, host
from tests.support.waiting import eventually


async def test_a_chain_of_calls_ends_where_the_limit_says(runtime: Any, start: Any) -> None:
    async def go_on(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call(f"hop{int(agent.id.type[3:]) + 1}")

    for number in range(4):
        await host(runtime, f"hop{number}", go_on)
    await host(runtime, "hop4", echo)
    await start(runtime)
    with stagebell.hop_limit(5):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("hop0")), 10)
    with stagebell.hop_limit(4), pytest.raises(HopLimitExceeded) as raised:
        await asyncio.wait_for(runtime.send_message(Ask(), agent("hop0")), 10)
    assert raised.value.recipient == "hop4/default"
    await asyncio.wait_for(runtime.send_message(Ask(), agent("hop0")), 10)


async def test_agents_that_publish_to_each_other_without_end_are_stopped(runtime: Any, start: Any) -> None:
    seen: list[str] = []

    async def pass_on(agent: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append(agent.id.type)
        other = "pong" if agent.id.type == "ping" else "ping"
        try:
            await agent.publish_message(Note(), TopicId(other, "d"))
        except HopLimitExceeded:
            seen.append("end")

    await host(runtime, "ping", note=pass_on, topics=("ping",))
    await host(runtime, "pong", note=pass_on, topics=("pong",))
    await start(runtime)
    with stagebell.hop_limit(6):
        await runtime.publish_message(Note(), TopicId("ping", "d"))
    await eventually(lambda: "end" in seen, 10)
    assert seen == ["ping", "pong"] * 3 + ["end"]


async def test_the_smallest_limit_counts(runtime: Any, start: Any) -> None:
    async def widen(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        with stagebell.hop_limit(100):
            return await agent.call("last")

    await host(runtime, "first", widen)
    await host(runtime, "last", echo)
    await start(runtime)
    with stagebell.hop_limit(1), pytest.raises(HopLimitExceeded):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("first")), 10)
    with stagebell.hop_limit(2):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("first")), 10)


async def test_agents_bound_to_a_process_hand_the_limit_on(runtime: Any, start: Any) -> None:
    seen: list[str] = []

    async def report(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await agent.publish_message(Note(), TopicId("desk", "d"))

    async def stop(agent: Doing, message: Note, ctx: MessageContext) -> None:
        try:
            await agent.publish_message(Note(), TopicId("report", "d"))
        except HopLimitExceeded:
            seen.append("end")

    await host(runtime, "reporter", note=report, topics=("report",))
    await host(runtime, "desk", note=stop, topics=("desk",), cls=Bound)
    await start(runtime)
    with stagebell.hop_limit(2):
        await runtime.publish_message(Note(), TopicId("report", "d"))
    await eventually(lambda: seen == ["end"], 10)


@pytest.mark.unit
async def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"), stagebell.hop_limit(0):
        pass
