"""Checked by mypy and pyright, never run: what the public names are to a type checker."""

from datetime import datetime
from typing import Any, assert_type

from autogen_core import AgentId, AgentRuntime, TopicId
from autogen_core.models import ChatCompletionClient

from stagebell import (
    DeferredReply,
    LocalRuntime,
    Publisher,
    RedisRuntime,
    StagebellError,
    Timer,
    Timers,
    defer_reply,
    errors,
)
from stagebell.testing import ScriptedModel


def wants_the_protocol(runtime: AgentRuntime) -> None: ...


def wants_a_model(model: ChatCompletionClient) -> None: ...


async def the_local_runtime_is_a_drop_in() -> None:
    runtime = LocalRuntime(intervention_handlers=[], tracer_provider=None, ignore_unhandled_exceptions=True)
    wants_the_protocol(runtime)
    assert_type(runtime.start(), None)
    assert_type(runtime.unprocessed_messages_count, int)
    assert_type(await runtime.send_message("hello", AgentId("greeter", "one")), Any)
    assert_type(await runtime.publish_message("hello", TopicId("greetings", "one")), None)
    assert_type(await runtime.stop_when(lambda: True), None)
    assert_type(await runtime.process_next(), None)
    assert_type(await runtime.stop_when_idle(), None)
    assert_type(await runtime.stop(), None)
    assert_type(await runtime.close(), None)
    async with LocalRuntime() as opened:
        assert_type(opened, LocalRuntime)


async def the_redis_runtime_has_the_same_protocol() -> None:
    runtime = RedisRuntime("redis://localhost", namespace="orders")
    wants_the_protocol(runtime)
    wants_the_protocol(RedisRuntime())
    assert_type(await runtime.start(), None)
    assert_type(await runtime.stop_when_idle(timeout=5.0), None)
    assert_type(await runtime.stop(), None)
    assert_type(await runtime.close(), None)
    async with RedisRuntime() as opened:
        assert_type(opened, RedisRuntime)


async def a_publisher_needs_no_agents() -> None:
    async with Publisher("redis://localhost", namespace="orders") as publisher:
        assert_type(publisher, Publisher)


async def each_can_schedule(one: LocalRuntime, other: RedisRuntime, third: Publisher) -> None:
    timers: list[Timers] = [one, other, third]
    for each in timers:
        timer = await each.schedule("a message", AgentId("type", "key"), delay=1.0, every=60.0, name="reminder")
        assert_type(timer, Timer)
        assert_type(timer.due, datetime)
        assert_type(await timer.cancel(), bool)
        assert_type(await each.cancel_timer(timer.id), bool)


async def a_handle_is_text(handle: DeferredReply) -> None:
    assert_type(defer_reply(), DeferredReply)
    assert_type(DeferredReply.parse("id:type/key").agent, AgentId)
    assert_type(await handle.answer("any message"), None)
    assert_type(await handle.fail(ValueError()), None)


def errors_belong_to_one_tree(error: errors.Undeliverable) -> StagebellError:
    assert_type(error.recipient, str)
    return error


def the_scripted_model_is_a_model() -> None:
    wants_a_model(ScriptedModel(["Paris."]))
