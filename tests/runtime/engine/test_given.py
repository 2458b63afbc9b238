"""What cannot be meant is refused where it is given: settings, addresses and factories."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from autogen_core import AgentId, AgentType, TopicId, TypeSubscription

from stagebell import Limits, LocalRuntime, ModelAgent, Publisher, RedisRuntime, Retry, Runs, Settings, agent_options
from stagebell.errors import InvalidSetting, WrongType
from tests.support.agents import Ask, OnlyCalls, echo, host

WRONG: list[tuple[Callable[..., Any], str, Any, str]] = [
    (RedisRuntime, "lease", "3", "lease must be a number of seconds, from 0.01 on, not '3' (a str)"),
    (RedisRuntime, "lease", math.nan, "lease must be a number of seconds"),
    (RedisRuntime, "lease", True, "lease must be a number of seconds"),
    (RedisRuntime, "leese", 3, "RedisRuntime has no setting 'leese': did you mean lease? It has cancel_grace, "),
    (RedisRuntime, "partitions", 2.5, "partitions must be a whole number of partitions, from 1 on, not 2.5"),
    (RedisRuntime, "cancel_when_caller_gone", "no", "cancel_when_caller_gone must be True or False"),
    (RedisRuntime, "max_call_depth", 0, "max_call_depth must be a whole number of calls, from 1 on, not 0"),
    (RedisRuntime, "folder", 3, "folder must be a path or None, not 3"),
    (LocalRuntime, "stop_grace", -1, "stop_grace must be a number of seconds, from 0 on, not -1"),
    (LocalRuntime, "warn_affter", 1, "LocalRuntime has no setting 'warn_affter': did you mean warn_after?"),
    (LocalRuntime, "clock", 3, "clock must be a clock, or None, not 3"),
    (Publisher, "inbox_limt", 3, "Publisher has no setting 'inbox_limt': did you mean inbox_limit?"),
    (Settings, "leese", 3, "Settings has no setting 'leese': did you mean lease?"),
    (Limits, "max_step", 3, "Limits has no setting 'max_step': did you mean max_steps? It has max_bytes, max_cost, "),
    (Limits, "max_steps", "3", "max_steps of Limits: it should be a valid integer, not '3' (a str)"),
    (Retry, "atempts", 3, "Retry has no setting 'atempts': did you mean attempts?"),
    (Retry, "first_delay", "1", "first_delay must be a number of seconds, from 0 on, not '1' (a str)"),
    (agent_options, "concurency", "serial", "agent_options has no setting 'concurency': did you mean concurrency?"),
    (agent_options, "retry", 3, "retry must be a Retry, or None, not 3"),
    (agent_options, "interrupted_by", Ask, "interrupted_by must be a tuple of message classes"),
]


@pytest.mark.unit
@pytest.mark.parametrize(("of", "name", "value", "says"), WRONG, ids=[f"{of.__name__}-{n}" for of, n, _, _ in WRONG])
def test_a_setting_that_cannot_be_meant(of: Callable[..., Any], name: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        of(**{name: value})
    assert str(caught.value).startswith(says)
    assert caught.value.setting == name
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.unit
def test_a_name_in_the_place_of_a_model_client() -> None:
    client: Any = "gpt-4o"
    with pytest.raises(WrongType, match=r"must be a ChatCompletionClient, not 'gpt-4o': make one"):
        ModelAgent(client)


@pytest.mark.runtime
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("desk/eu", 'not \'desk/eu\' (a str): write AgentId("desk", "eu")'),
        ("desk", 'write AgentId("desk", "default")'),
        (AgentType("desk"), 'its key is missing, write AgentId("desk", "default")'),
        (TopicId("desk", "eu"), "not the topic desk/eu: publish to a topic with publish_message"),
        (3, 'an agent is named by AgentId("type", "key")'),
    ],
)
async def test_something_else_in_the_place_of_an_agent(given: Any, says: str) -> None:
    async with LocalRuntime() as runtime:
        await host(runtime, "desk", echo)
        publisher = Publisher("redis://nowhere")
        for send in (runtime.send_message, runtime.tell, publisher.send, publisher.call):
            with pytest.raises(WrongType) as caught:
                await send(Ask(), given)
            assert says in str(caught.value)


@pytest.mark.runtime
async def test_something_else_in_the_place_of_a_topic() -> None:
    text: Any = "orders"
    agent: Any = AgentId("desk", "eu")
    async with LocalRuntime() as runtime:
        for publish in (runtime.publish_message, Publisher("redis://nowhere").publish):
            with pytest.raises(WrongType, match=r'write TopicId\("orders", "default"\)'):
                await publish(Ask(), text)
            with pytest.raises(WrongType, match="send to an agent with send_message"):
                await publish(Ask(), agent)
        with pytest.raises(WrongType, match="must be an AgentId or a TopicId"):
            await runtime.schedule(Ask(), text, delay=1)


@pytest.mark.runtime
async def test_an_agent_in_the_place_of_its_factory() -> None:
    async with LocalRuntime() as runtime:
        made: Any = "desk"
        with pytest.raises(WrongType, match="the factory of agent type 'desk' must be a function without arguments"):
            await OnlyCalls.register(runtime, "desk", made)


@pytest.mark.runtime
async def test_runs_of_an_agent_that_makes_none() -> None:
    async with LocalRuntime() as runtime:
        await host(runtime, "desk", echo)
        with pytest.raises(WrongType, match="the agents of type 'desk' make no runs"):
            await Runs(runtime).start("desk", "do it")


@pytest.mark.runtime
@pytest.mark.parametrize("runtime", [LocalRuntime(), RedisRuntime("redis://nowhere")], ids=["local", "redis"])
@pytest.mark.parametrize("given", ["orders", 3, None, TypeSubscription])
async def test_something_else_in_the_place_of_a_subscription(runtime: LocalRuntime | RedisRuntime, given: Any) -> None:
    with pytest.raises(
        WrongType, match=r'must be a Subscription, not .*: write TypeSubscription\("orders", "greeter"\)'
    ):
        await runtime.add_subscription(given)


@pytest.mark.runtime
@pytest.mark.parametrize("given", ["Ask", b"Ask", 3, Ask, ["Ask"]])
def test_something_else_in_the_place_of_a_serializer(given: Any) -> None:
    with pytest.raises(
        WrongType, match=r"must be a MessageSerializer, not .*: write try_get_known_serializers_for_type"
    ):
        LocalRuntime().add_message_serializer(given)
