"""Message types: known, refused, and too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from autogen_core import (
    AgentId,
    MessageContext,
    RoutedAgent,
    TopicId,
    message_handler,
    try_get_known_serializers_for_type,
)
from pydantic import BaseModel

from stagebell.errors import MessageTooLarge, TypeConflict, UnregisteredType
from tests.support.agents import Ask, Note, Unknown, agent, echo, host


def another_class(name: str) -> type[BaseModel]:
    return type(name, (BaseModel,), {"__annotations__": {"other": int}, "other": 0, "__module__": __name__})


async def test_two_classes_under_one_name_are_refused(runtime: Any) -> None:
    await host(runtime, "echo", echo)
    with pytest.raises(TypeConflict, match=rf"{Ask.__module__}\.Ask") as caught:
        runtime.add_message_serializer(try_get_known_serializers_for_type(another_class("Ask")))
    assert caught.value.type_name == "Ask"
    assert caught.value.first is Ask


async def test_the_same_class_may_be_registered_again(runtime: Any, start: Any) -> None:
    await host(runtime, "one", echo)
    await host(runtime, "two", echo)
    runtime.add_message_serializer(try_get_known_serializers_for_type(Ask))
    await start(runtime)
    assert [await runtime.send_message(Ask(text=name), agent(name)) for name in ("one", "two")] == ["one", "two"]


@pytest.mark.needs(any_object=False)
async def test_a_type_nobody_registered_is_refused_where_it_would_travel(runtime: Any, start: Any) -> None:
    await host(runtime, "echo", echo, topics=("news",))
    await start(runtime)
    with pytest.raises(UnregisteredType, match="Unknown"):
        await runtime.send_message(Unknown(), agent("echo"))
    with pytest.raises(UnregisteredType, match="Unknown"):
        await runtime.publish_message(Unknown(), TopicId("news", "d"))


@pytest.mark.needs(any_object=False)
async def test_a_message_over_the_limit_is_refused_before_it_is_stored(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime(max_message_bytes=2_000)
    await host(runtime, "echo", echo, topics=("news",))
    await start(runtime)
    assert await runtime.send_message(Ask(text="x" * 1_000), agent("echo")) == "x" * 1_000
    with pytest.raises(MessageTooLarge, match="max_message_bytes") as caught:
        await runtime.send_message(Ask(text="x" * 3_000), agent("echo"))
    assert caught.value.limit == 2_000
    assert caught.value.size > 3_000
    with pytest.raises(MessageTooLarge):
        await runtime.publish_message(Note(text="x" * 3_000), TopicId("news", "d"))


@dataclass
class Plain:
    """A dataclass is a message too."""

    items: list[int]
    note: str = ""


class Nested(BaseModel):
    """Holds another model."""

    inner: Ask
    many: list[Ask] = []


class Shapes(RoutedAgent):
    """Answers with what the annotation says."""

    def __init__(self) -> None:
        super().__init__("shapes")

    @message_handler
    async def on_plain(self, message: Plain, ctx: MessageContext) -> Plain:
        return Plain(message.items[::-1], message.note)

    @message_handler
    async def on_nested(self, message: Nested, ctx: MessageContext) -> Nested | None:
        return message if message.many else None


async def test_dataclasses_and_nested_models_travel(runtime: Any, start: Any) -> None:
    await Shapes.register(runtime, "shapes", Shapes)
    await start(runtime)
    shapes = AgentId("shapes", "default")
    assert await runtime.send_message(Plain([1, 2], "ü 漢 \n"), shapes) == Plain([2, 1], "ü 漢 \n")
    nested = Nested(inner=Ask(text="a"), many=[Ask(number=1), Ask(number=2)])
    reply = await runtime.send_message(nested, shapes)
    assert reply == nested
    assert type(reply) is Nested
    assert await runtime.send_message(Nested(inner=Ask()), shapes) is None
