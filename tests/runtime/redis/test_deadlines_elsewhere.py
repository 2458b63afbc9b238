"""Deadlines travel with calls and publishes to other processes: two runtimes over one server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from autogen_core import MessageContext, TopicId

import stagebell
from stagebell import Publisher, RedisRuntime
from stagebell.errors import DeadlineExceeded
from stagebell.runtime.engine.clock import Alarm, SystemClock
from tests.runtime.redis.two_runtimes import Two, Waiting
from tests.support.agents import Ask, Doing, Note, agent, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_the_time_out_of_a_publisher_travels_with_its_call(two: Two, server: Server, namespace: str) -> None:
    waiting, left = Waiting(), []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        left.append(stagebell.remaining())
        await waiting(agent, message, ctx)

    await host(two.far, "slow", ask)
    await two.start()
    async with Publisher(server.url, namespace=namespace) as publisher:
        with pytest.raises(DeadlineExceeded):
            await publisher.call(Ask(), agent("slow"), timeout=0.5)
    await eventually(lambda: waiting.tokens == [True])
    assert 0 < left[0] <= 0.5
    await two.at_rest()


async def test_a_call_that_comes_after_its_deadline_is_answered_without_running(two: Two) -> None:
    gate, entered, ran = asyncio.Event(), asyncio.Event(), []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        ran.append(message.text)
        entered.set()
        await gate.wait()

    await host(two.far, "busy", ask)
    await two.start()
    first = asyncio.create_task(two.near.send_message(Ask(text="first"), agent("busy")))
    await asyncio.wait_for(entered.wait(), 5)
    with stagebell.deadline(0.3), pytest.raises(DeadlineExceeded):
        await two.near.send_message(Ask(text="second"), agent("busy"))
    await eventually(lambda: two.view.backlog() == 1)
    gate.set()
    await asyncio.wait_for(first, 5)
    await two.at_rest()
    assert ran == ["first"]


async def test_a_call_whose_deadline_is_over_does_not_begin_before_its_alarm(server: Server, namespace: str) -> None:
    """The alarm of the caller may go off a little earlier than that of the callee."""

    class Late(SystemClock):
        def call_at(self, at_ms: int, call: Callable[[], object]) -> Alarm:
            return super().call_at(at_ms + 400, call)

    gate, entered, ran = asyncio.Event(), asyncio.Event(), []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        ran.append(message.text)
        entered.set()
        await gate.wait()

    runtime = RedisRuntime(server.url, namespace=namespace, clock=Late())
    await host(runtime, "busy", ask)
    async with runtime:
        first = asyncio.create_task(runtime.send_message(Ask(text="first"), agent("busy")))
        await asyncio.wait_for(entered.wait(), 5)
        with stagebell.deadline(0.05):
            second = asyncio.create_task(runtime.send_message(Ask(text="second"), agent("busy")))
            await eventually(lambda: stagebell.remaining() == 0)
        gate.set()
        await asyncio.wait_for(first, 5)
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(second, 5)
    assert ran == ["first"]


async def test_an_expired_publish_goes_to_the_dead_letters(two: Two) -> None:
    waiting = Waiting()
    await host(two.far, "slow", note=waiting, topics=("notes",))
    await two.start()
    with stagebell.deadline(0.3):
        await two.near.publish_message(Note(), TopicId("notes", "x"))
    await asyncio.wait_for(waiting.entered.wait(), 5)
    await eventually(lambda: two.view.dead_letters(), within=5)
    (letter,) = two.view.dead_letters()
    assert "deadline" in letter["reason"]
    await two.at_rest()


async def test_a_publish_inside_a_turn_carries_the_deadline_of_the_turn(two: Two) -> None:
    left: list[float | None] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await agent.publish_message(Note(), TopicId("notes", "x"))

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        left.append(stagebell.remaining())

    await host(two.far, "asks", ask)
    await host(two.near, "hears", note=note, topics=("notes",))
    await two.start()
    with stagebell.deadline(20):
        await two.near.send_message(Ask(), agent("asks"))
    await eventually(lambda: left)
    assert left[0]
    assert 10 < left[0] <= 20
    await two.at_rest()
