"""Interventions of the application: in order, each on what the one before it made, on all three hooks."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from autogen_core import AgentId, DefaultInterventionHandler, DropMessage, MessageContext, TopicId
from autogen_core.exceptions import MessageDroppedException

from tests.support.agents import Answer, Ask, Doing, Note, agent, collect, echo, host


class Marking(DefaultInterventionHandler):
    """Adds its mark to every message, and notes what it was told."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.seen: list[tuple[Any, ...]] = []

    async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
        self.seen.append(("send", message_context.sender, recipient, message_context.is_rpc))
        return message.model_copy(update={"text": message.text + self.mark})

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        self.seen.append(("publish", message_context.sender, message_context.topic_id, message_context.is_rpc))
        return message.model_copy(update={"text": message.text + self.mark})

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        self.seen.append(("response", sender, recipient))
        return message + self.mark


class Dropping(DefaultInterventionHandler):
    """Drops on one hook."""

    def __init__(self, hook: str, value: Any) -> None:
        self.hook = hook
        self.value = value

    async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
        return self.value if self.hook == "send" else message

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        return self.value if self.hook == "publish" else message

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        return self.value if self.hook == "response" else message


async def test_each_sees_what_the_one_before_it_made_of_a_call_and_of_its_reply(make_runtime: Any, start: Any) -> None:
    first, second = Marking("1"), Marking("2")
    runtime = make_runtime(intervention_handlers=[first, second])
    await host(runtime, "echo", echo)
    await start(runtime)
    assert await runtime.send_message(Ask(text="x"), agent("echo")) == "x1212"
    expected = [("send", None, agent("echo"), True), ("response", agent("echo"), None)]
    assert first.seen == second.seen == expected


async def test_each_sees_what_the_one_before_it_made_of_a_publish(make_runtime: Any, start: Any) -> None:
    first, second = Marking("1"), Marking("2")
    runtime = make_runtime(intervention_handlers=[first, second])
    seen: list[str] = []
    await host(runtime, "reader", note=collect(seen), topics=("news",))
    await start(runtime)
    await runtime.publish_message(Note(text="x"), TopicId("news", "d"))
    await runtime.stop_when_idle()
    assert seen == ["x12"]
    assert first.seen[0] == ("publish", None, TopicId("news", "d"), False)


async def test_calls_of_handlers_pass_them_too(make_runtime: Any, start: Any) -> None:
    marking = Marking("!")
    runtime = make_runtime(intervention_handlers=[marking])

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        return str(await agent.call("echo", "inner"))

    await host(runtime, "echo", echo)
    await host(runtime, "outer", ask)
    await start(runtime)
    assert await runtime.send_message(Ask(), agent("outer")) == "inner!!!"
    assert ("send", agent("outer"), agent("echo"), True) in marking.seen
    assert ("response", agent("echo"), agent("outer")) in marking.seen


@pytest.mark.parametrize("value", [DropMessage, DropMessage()], ids=["class", "instance"])
@pytest.mark.parametrize("hook", ["send", "response"])
async def test_a_dropped_call_or_reply_is_an_error_of_the_caller(
    make_runtime: Any, start: Any, hook: str, value: Any
) -> None:
    later = Marking("2")
    runtime = make_runtime(intervention_handlers=[Dropping(hook, value), later])
    await host(runtime, "echo", echo)
    await start(runtime)
    with pytest.raises(MessageDroppedException):
        await runtime.send_message(Ask(text="x"), agent("echo"))
    assert not [call for call in later.seen if call[0] == hook]


@pytest.mark.parametrize("value", [DropMessage, DropMessage()], ids=["class", "instance"])
async def test_a_dropped_publish_reaches_nobody(make_runtime: Any, start: Any, value: Any) -> None:
    later = Marking("2")
    runtime = make_runtime(intervention_handlers=[Dropping("publish", value), later])
    seen: list[str] = []
    await host(runtime, "reader", note=collect(seen), topics=("news",))
    await start(runtime)
    await runtime.publish_message(Note(), TopicId("news", "d"))
    await runtime.stop_when_idle()
    assert not seen
    assert not later.seen


@pytest.mark.parametrize("hook", ["send", "publish", "response"])
async def test_one_that_returns_none_is_warned_about_and_changes_nothing(
    make_runtime: Any, start: Any, hook: str
) -> None:
    runtime = make_runtime(intervention_handlers=[Dropping(hook, None)])
    seen: list[str] = []
    await host(runtime, "echo", echo, collect(seen), topics=("news",))
    await start(runtime)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert await runtime.send_message(Ask(text="x"), agent("echo")) == "x"
        await runtime.publish_message(Note(text="y"), TopicId("news", "default"))
        await runtime.stop_when_idle()
    assert f"on_{hook} returned None" in " ".join(str(warning.message) for warning in warned)
    assert seen == ["y"]


class Refusing(DefaultInterventionHandler):
    """Raises on every hook it is told to."""

    async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
        raise PermissionError("not allowed")

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        raise PermissionError("not allowed")


async def test_what_one_raises_reaches_the_sender(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime(intervention_handlers=[Refusing()])
    await host(runtime, "echo", echo, topics=("news",))
    await start(runtime)
    with pytest.raises(PermissionError, match="not allowed"):
        await runtime.send_message(Ask(), agent("echo"))
    with pytest.raises(PermissionError, match="not allowed"):
        await runtime.publish_message(Note(), TopicId("news", "d"))


class Replacing(DefaultInterventionHandler):
    """Answers with a message of another class."""

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        return Answer(text=str(message))


async def test_a_reply_may_become_one_of_another_class(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime(intervention_handlers=[Replacing()])
    await host(runtime, "echo", echo)
    await start(runtime)
    assert await runtime.send_message(Ask(text="x"), agent("echo")) == Answer(text="x")
