"""Publishes: whom they reach, how often, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import (
    AgentId,
    DefaultTopicId,
    MessageContext,
    RoutedAgent,
    Subscription,
    TopicId,
    TypePrefixSubscription,
    TypeSubscription,
    default_subscription,
    message_handler,
    type_subscription,
)

from stagebell.testing.contract.agents import Ask, Doing, Note, OnlyEvents, agent, collect, host
from stagebell.testing.contract.case import Room, case, start
from stagebell.testing.contract.waiting import eventually, turns_of_the_loop


@type_subscription("declared")
class Declared(OnlyEvents):
    """Subscribes on its class."""


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


class OnlyCallsOfAsk(RoutedAgent):
    """Has no handler for notes."""

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> None:
        return None


class EveryTopic(Subscription):
    """A subscription of the application's own class."""

    @property
    def id(self) -> str:
        return "every-topic"

    def is_match(self, topic_id: TopicId) -> bool:
        return True

    def map_to_agent(self, topic_id: TopicId) -> AgentId:
        return AgentId("reader", topic_id.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EveryTopic)

    def __hash__(self) -> int:
        return hash(self.id)


class Publishes(Room):
    """Publishes: whom they reach, how often, and in which order."""

    @case()
    async def test_a_publish_reaches_the_agent_named_by_the_topics_source(self, runtime: Any) -> None:
        seen: list[tuple[str, Any]] = []

        async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
            seen.append((agent.id.key, ctx.topic_id))

        await host(runtime, "reader", note=note, topics=("news",))
        await start(runtime)
        await runtime.publish_message(Note(), TopicId("news", "eu"))
        await runtime.publish_message(Note(), TopicId("other", "eu"))
        await runtime.stop_when_idle()
        assert seen == [("eu", TopicId("news", "eu"))]

    @case()
    async def test_a_publish_reaches_every_subscriber_once(self, runtime: Any) -> None:
        seen: list[str] = []

        async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
            seen.append(agent.id.type)

        for name in ("one", "two", "three"):
            await host(runtime, name, note=note, topics=("news",))
        await start(runtime)
        await runtime.publish_message(Note(), TopicId("news", "eu"))
        await runtime.stop_when_idle()
        assert sorted(seen) == ["one", "three", "two"]

    @case()
    async def test_an_agent_matched_by_two_subscriptions_gets_one_message(self, runtime: Any) -> None:
        seen: list[str] = []
        await host(runtime, "reader", note=collect(seen), topics=("news",))
        await runtime.add_subscription(TypePrefixSubscription("ne", "reader"))
        await start(runtime)
        await runtime.publish_message(Note(text="once"), TopicId("news", "eu"))
        await runtime.stop_when_idle()
        assert seen == ["once"]

    @case()
    async def test_a_prefix_subscription_takes_every_type_that_begins_with_it(self, runtime: Any) -> None:
        seen: list[str] = []
        await host(runtime, "reader", note=collect(seen))
        await runtime.add_subscription(TypePrefixSubscription("order.", "reader"))
        await start(runtime)
        for topic in ("order.placed", "order.paid", "stock.low"):
            await runtime.publish_message(Note(text=topic), TopicId(topic, "eu"))
        await runtime.stop_when_idle()
        assert sorted(seen) == ["order.paid", "order.placed"]

    @case()
    async def test_every_agent_has_a_topic_of_its_own(self, runtime: Any) -> None:
        """Each type is subscribed to `type:`; a publish there is a message to one agent that awaits no reply."""
        seen: list[str] = []
        await host(runtime, "reader", note=collect(seen))
        await start(runtime)
        await runtime.publish_message(Note(text="direct"), TopicId("reader:", "eu"))
        await runtime.stop_when_idle()
        assert seen == ["direct"]

    @case()
    async def test_the_default_topic_has_the_key_of_the_agent_whose_turn_it_is(self, runtime: Any) -> None:
        seen: list[tuple[str, int]] = []
        await Chain.register(runtime, "left", lambda: Chain(seen))
        await Chain.register(runtime, "right", lambda: Chain(seen))
        await start(runtime)
        await runtime.publish_message(Note(number=2), TopicId("default", "customer-7"))
        await runtime.stop_when_idle()
        assert {key for key, _ in seen} == {"customer-7"}

    @case()
    async def test_a_publisher_does_not_hear_itself_and_idle_means_the_chain_has_ended(self, runtime: Any) -> None:
        """Two agents that answer each other: each step has one hearer, and stop_when_idle waits for the last."""
        seen: list[tuple[str, int]] = []
        await Chain.register(runtime, "left", lambda: Chain(seen))
        await Chain.register(runtime, "right", lambda: Chain(seen))
        await start(runtime)
        await runtime.publish_message(Note(number=30), TopicId("default", "d"), sender=AgentId("left", "d"))
        await runtime.stop_when_idle()
        assert [number for _, number in seen] == list(range(30, -1, -1))

    @case()
    async def test_publishes_of_one_sender_arrive_in_order(self, runtime: Any) -> None:
        seen: list[str] = []

        async def slow(agent: Doing, message: Note, ctx: MessageContext) -> None:
            await asyncio.sleep(0)
            seen.append(message.text)

        async def many(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            for number in range(60):
                await agent.publish_message(Note(text=str(number)), TopicId("log", "d"))

        await host(runtime, "log", note=slow, topics=("log",))
        await host(runtime, "sender", many)
        await start(runtime)
        await runtime.send_message(Ask(), agent("sender"))
        await runtime.stop_when_idle()
        assert seen == [str(number) for number in range(60)]

    @case()
    async def test_publishes_and_calls_from_outside_arrive_in_order(self, runtime: Any) -> None:
        seen: list[str] = []

        async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
            await turns_of_the_loop(2)
            seen.append(message.text)

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            seen.append(message.text)

        await host(runtime, "log", ask, note, topics=("log",))
        await start(runtime)
        for number in range(10):
            await runtime.publish_message(Note(text=f"p{number}"), TopicId("log", "default"))
            await runtime.send_message(Ask(text=f"c{number}"), agent("log"))
        assert seen == [word for number in range(10) for word in (f"p{number}", f"c{number}")]

    @case(publish_then_call=True)
    async def test_order_holds_across_the_publishes_and_calls_of_a_handler(self, runtime: Any) -> None:
        seen: list[str] = []

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            seen.append(message.text)

        async def sender(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            for number in range(5):
                await agent.publish_message(Note(text=f"p{number}"), TopicId("log", "default"))
                await agent.call("log", f"c{number}")

        await host(runtime, "log", ask, collect(seen), topics=("log",))
        await host(runtime, "sender", sender)
        await start(runtime)
        await runtime.send_message(Ask(), agent("sender"))
        assert seen == [word for number in range(5) for word in (f"p{number}", f"c{number}")]

    @case()
    async def test_a_publish_nobody_subscribes_to_is_no_error(self, runtime: Any) -> None:
        seen: list[str] = []
        await host(runtime, "reader", note=collect(seen), topics=("news",))
        await start(runtime)
        await runtime.publish_message(Note(text="unheard"), TopicId("nobody", "d"))
        await runtime.publish_message(Note(text="heard"), TopicId("news", "d"))
        await runtime.stop_when_idle()
        assert seen == ["heard"]

    @case()
    async def test_a_publish_inside_a_handler_does_not_wait_for_its_subscribers(self, runtime: Any) -> None:
        gate = asyncio.Event()
        seen: list[str] = []

        async def wait(agent: Doing, message: Note, ctx: MessageContext) -> None:
            await gate.wait()
            seen.append(message.text)

        async def publish(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            await agent.publish_message(Note(text="later"), TopicId("news", "d"))
            return "published"

        await host(runtime, "reader", note=wait, topics=("news",))
        await host(runtime, "publisher", publish)
        await start(runtime)
        assert await runtime.send_message(Ask(), agent("publisher")) == "published"
        assert not seen
        gate.set()
        await runtime.stop_when_idle()
        assert seen == ["later"]

    @case()
    async def test_subscriptions_can_be_taken_back(self, runtime: Any) -> None:
        seen: list[str] = []
        await host(runtime, "reader", note=collect(seen))
        subscription = TypeSubscription("news", "reader")
        await runtime.add_subscription(subscription)
        await start(runtime)
        await runtime.publish_message(Note(text="heard"), TopicId("news", "d"))
        await eventually(lambda: seen)
        await runtime.remove_subscription(subscription.id)
        await runtime.publish_message(Note(text="unheard"), TopicId("news", "d"))
        await runtime.stop_when_idle()
        assert seen == ["heard"]

    @case()
    async def test_subscriptions_can_be_added_while_it_runs(self, runtime: Any) -> None:
        seen: list[str] = []
        await host(runtime, "reader", note=collect(seen))
        await start(runtime)
        await runtime.publish_message(Note(text="unheard"), TopicId("news", "d"))
        await runtime.add_subscription(TypeSubscription("news", "reader"))
        await runtime.publish_message(Note(text="heard"), TopicId("news", "d"))
        await runtime.stop_when_idle()
        assert seen == ["heard"]
