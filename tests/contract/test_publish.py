"""Publishes: whom they reach, how often, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import (
    DefaultTopicId,
    MessageContext,
    RoutedAgent,
    TopicId,
    TypeSubscription,
    default_subscription,
    message_handler,
    type_subscription,
)

from stagebell.errors import SubscriptionError
from stagebell.testing.contract.publishes import EveryTopic
from tests.support.agents import Ask, Doing, Note, OnlyEvents, agent, collect, echo, host
from tests.support.waiting import eventually, turns_of_the_loop


@type_subscription("declared")
class Declared(OnlyEvents):
    """Subscribes on its class."""


async def test_a_class_may_declare_its_subscription(runtime: Any, start: Any, make_runtime: Any) -> None:
    instances: list[Declared] = []

    def make() -> Declared:
        instances.append(Declared())
        return instances[-1]

    await Declared.register(runtime, "declared", make)
    await start(runtime)
    await runtime.publish_message(Note(text="hi"), TopicId("declared", "x"))
    await runtime.stop_when_idle()
    assert [one.seen for one in instances] == [["hi"]]


@default_subscription
class Chain(RoutedAgent):
    """Publishes on the default topic until the number is used up."""

    def __init__(self, seen: list[tuple[str, int]]) -> None:
        super().__init__("chain")
        self._seen = seen

    @message_handler
    async def on_note(self, message: Note, ctx: MessageContext) -> None:
        self._seen.append((self.id.key, message.number))
        if message.number:
            await self.publish_message(Note(number=message.number - 1), DefaultTopicId())


async def test_a_subscriber_that_cannot_handle_it_or_fails_keeps_nothing_from_the_others(
    runtime: Any, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    async def fail(agent: Doing, message: Note, ctx: MessageContext) -> None:
        raise ValueError("this subscriber is broken")

    await host(runtime, "failing", note=fail, topics=("news",))
    await OnlyCallsOfAsk.register(runtime, "deaf", lambda: OnlyCallsOfAsk("deaf"))
    await runtime.add_subscription(TypeSubscription("news", "deaf"))
    await host(runtime, "reader", note=collect(seen), topics=("news",))
    await start(runtime)
    await runtime.publish_message(Note(text="1"), TopicId("news", "d"))
    await eventually(lambda: seen == ["1"])
    await runtime.publish_message(Note(text="2"), TopicId("news", "d"))
    await runtime.stop_when_idle()
    assert seen == ["1", "2"]
    assert "this subscriber is broken" in caplog.text


class OnlyCallsOfAsk(RoutedAgent):
    """Has no handler for notes."""

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> None:
        return None


async def test_a_publish_leaves_at_once_or_with_the_end_of_the_turn(
    runtime: Any, start: Any, capabilities: Any
) -> None:
    seen: list[str] = []
    heard_within_the_turn: list[bool] = []

    async def publish(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await agent.publish_message(Note(text="news"), TopicId("news", "d"))
        await agent.call("other")
        await turns_of_the_loop()
        heard_within_the_turn.append(bool(seen))

    await host(runtime, "reader", note=collect(seen), topics=("news",))
    await host(runtime, "other", echo)
    await host(runtime, "publisher", publish)
    await start(runtime)
    await runtime.send_message(Ask(), agent("publisher"))
    await runtime.stop_when_idle()
    assert heard_within_the_turn == [capabilities.publishes_at_once]
    assert seen == ["news"]


async def test_a_subscription_is_there_once(runtime: Any, start: Any) -> None:
    await host(runtime, "reader")
    await start(runtime)
    await runtime.add_subscription(TypeSubscription("news", "reader"))
    with pytest.raises(SubscriptionError, match="already exists"):
        await runtime.add_subscription(TypeSubscription("news", "reader"))
    with pytest.raises(SubscriptionError, match="does not exist"):
        await runtime.remove_subscription("never added")


async def test_a_subscription_of_another_class_works_or_is_refused_by_name(
    runtime: Any, start: Any, capabilities: Any
) -> None:
    seen: list[str] = []
    await host(runtime, "reader", note=collect(seen))
    await start(runtime)
    if not capabilities.custom_subscriptions:
        with pytest.raises(SubscriptionError, match="EveryTopic"):
            await runtime.add_subscription(EveryTopic())
        return
    await runtime.add_subscription(EveryTopic())
    await runtime.publish_message(Note(text="any"), TopicId("whatever", "d"))
    await runtime.stop_when_idle()
    assert seen == ["any"]
