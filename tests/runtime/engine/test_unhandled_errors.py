"""With `ignore_unhandled_exceptions=False` the first error of a publish stops everything and is raised."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId

from stagebell import LocalRuntime
from stagebell.errors import RuntimeNotRunning
from tests.support.agents import Ask, Doing, Note, agent, collect, host
from tests.support.waiting import turns_of_the_loop

pytestmark = pytest.mark.runtime


async def failing(agent: Doing, message: Any, ctx: MessageContext) -> None:
    raise ValueError("the handler is broken")


async def strict_runtime() -> LocalRuntime:
    runtime = LocalRuntime(ignore_unhandled_exceptions=False)
    await host(runtime, "broken", failing, failing, topics=("news",))
    return runtime


async def test_an_unhandled_error_of_a_publish_is_raised_by_stop_when_idle() -> None:
    runtime = await strict_runtime()
    runtime.start()
    await runtime.publish_message(Note(), TopicId("news", "default"))
    with pytest.raises(ValueError, match="the handler is broken"):
        await asyncio.wait_for(runtime.stop_when_idle(), 1)
    runtime.start()  # the error was told once
    await runtime.stop_when_idle()


async def test_an_unhandled_error_of_a_publish_is_raised_by_stop() -> None:
    runtime = await strict_runtime()
    runtime.start()
    await runtime.publish_message(Note(), TopicId("news", "default"))
    await turns_of_the_loop()
    with pytest.raises(ValueError, match="the handler is broken"):
        await runtime.stop()


async def test_an_unhandled_error_of_a_publish_is_raised_by_stop_when() -> None:
    runtime = await strict_runtime()
    runtime.start()
    await runtime.publish_message(Note(), TopicId("news", "default"))
    with pytest.raises(ValueError, match="the handler is broken"):
        await asyncio.wait_for(runtime.stop_when(lambda: False, check_period=0.005), 1)


async def test_after_an_unhandled_error_a_publish_is_refused_and_not_lost() -> None:
    runtime = await strict_runtime()
    seen: list[str] = []
    await host(runtime, "reader", note=collect(seen), topics=("later",))
    runtime.start()
    await runtime.publish_message(Note(), TopicId("news", "default"))
    await turns_of_the_loop()
    with pytest.raises(RuntimeNotRunning):
        await runtime.publish_message(Note(text="lost?"), TopicId("later", "d"))
    with pytest.raises(ValueError, match="the handler is broken"):
        await runtime.stop()


async def test_an_error_of_a_call_is_no_unhandled_error() -> None:
    runtime = await strict_runtime()
    runtime.start()
    with pytest.raises(ValueError, match="the handler is broken"):
        await runtime.send_message(Ask(), agent("broken"))
    await runtime.stop_when_idle()


async def test_an_unhandled_error_is_raised_by_the_next_step() -> None:
    runtime = await strict_runtime()
    await runtime.publish_message(Note(), TopicId("news", "default"))
    await runtime.process_next()
    with pytest.raises(ValueError, match="the handler is broken"):
        await runtime.process_next()
