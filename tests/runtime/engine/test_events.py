"""Events and spans: right when somebody listens, and free when nobody does."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from autogen_core import (
    EVENT_LOGGER_NAME,
    AgentId,
    DefaultInterventionHandler,
    DropMessage,
    MessageContext,
    TopicId,
    TypeSubscription,
)
from autogen_core.exceptions import MessageDroppedException
from autogen_core.models import FunctionExecutionResult
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stagebell import LocalRuntime
from stagebell.messages.registry import TypeRegistry
from tests.support.agents import Ask, Doing, Note, agent, collect, echo, host

pytestmark = pytest.mark.runtime


@pytest.fixture
def events() -> Iterator[list[dict[str, Any]]]:
    """AutoGen's events, as the dicts they are written as."""
    seen: list[dict[str, Any]] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(json.loads(str(record.msg)))

    logger, handler = logging.getLogger(EVENT_LOGGER_NAME), Collect()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield seen
    logger.removeHandler(handler)
    logger.setLevel(before)


def steps(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (event["type"], event["kind"].split(".")[-1], event["delivery_stage"].split(".")[-1])
        for event in events
        if event["type"] == "Message"
    ]


async def test_nothing_is_serialised_when_nobody_listens(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []
    monkeypatch.setattr(TypeRegistry, "encode", lambda self, message: encoded.append(message))
    seen: list[str] = []
    await host(runtime, "reader", echo, collect(seen), topics=("news",))
    await runtime.send_message(Ask(), agent("reader"))
    await runtime.publish_message(Note(text="x"), TopicId("news", "default"))
    await runtime.stop_when_idle()
    runtime.start()
    assert seen == ["x"]
    assert not encoded
    assert runtime._events.tracer is None


async def test_a_call_is_told_as_sent_delivered_answered_and_received(runtime: Any, events: Any) -> None:
    await host(runtime, "echo", echo)
    await runtime.send_message(Ask(text="hello"), agent("echo"), sender=AgentId("me", "x"))
    assert steps(events) == [
        ("Message", "DIRECT", "SEND"),
        ("Message", "DIRECT", "DELIVER"),
        ("Message", "RESPOND", "SEND"),
        ("Message", "RESPOND", "DELIVER"),
    ]
    assert {(event["sender"], event["receiver"]) for event in events[:2]} == {("me/x", "echo/default")}
    assert {(event["sender"], event["receiver"]) for event in events[2:]} == {("echo/default", "me/x")}
    assert json.loads(events[0]["payload"])["text"] == "hello"
    assert json.loads(events[2]["payload"]) == "hello"


async def test_a_reply_of_a_class_that_nobody_registered_is_told_too(runtime: Any, events: Any) -> None:
    async def answer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return FunctionExecutionResult(content="5", call_id="1", is_error=False, name="add")

    await host(runtime, "tools", answer)
    await runtime.send_message(Ask(), agent("tools"))
    assert json.loads(events[2]["payload"])["content"] == "5"


async def test_a_publish_is_told_once_as_sent_and_once_a_subscriber_as_delivered(runtime: Any, events: Any) -> None:
    for name in ("one", "two"):
        await host(runtime, name, note=collect([]), topics=("news",))
    await runtime.publish_message(Note(text="hello"), TopicId("news", "d"))
    await runtime.stop_when_idle()
    runtime.start()
    assert sorted(steps(events)) == [
        ("Message", "PUBLISH", "DELIVER"),
        ("Message", "PUBLISH", "DELIVER"),
        ("Message", "PUBLISH", "SEND"),
    ]
    assert events[0]["receiver"] == "news/d"


async def test_a_handler_that_raises_is_told(runtime: Any, events: Any) -> None:
    async def fail(agent: Doing, message: Any, ctx: MessageContext) -> None:
        raise ValueError("broken")

    await host(runtime, "bad", fail, fail, topics=("news",))
    with pytest.raises(ValueError, match="broken"):
        await runtime.send_message(Ask(text="call"), agent("bad"))
    await runtime.publish_message(Note(text="publish"), TopicId("news", "default"))
    await runtime.stop_when_idle()
    runtime.start()
    raised = [event for event in events if event["type"] == "MessageHandlerException"]
    assert [event["handling_agent"] for event in raised] == ["bad/default"] * 2
    assert all("broken" in event["exception"] for event in raised)
    assert [json.loads(event["payload"])["text"] for event in raised] == ["call", "publish"]


async def test_a_dropped_message_is_told_with_what_it_was(events: Any) -> None:
    class DropAll(DefaultInterventionHandler):
        async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
            return DropMessage

        async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
            return DropMessage

    async with LocalRuntime(intervention_handlers=[DropAll()]) as runtime:
        await host(runtime, "reader", echo, topics=("news",))
        with pytest.raises(MessageDroppedException):
            await runtime.send_message(Ask(text="call"), agent("reader"))
        await runtime.publish_message(Note(text="publish"), TopicId("news", "d"))
    dropped = [event for event in events if event["type"] == "MessageDropped"]
    assert [json.loads(event["payload"]).get("text") for event in dropped] == ["call", "publish"]
    assert [event["receiver"] for event in dropped] == ["reader/default", "news/d"]


async def test_an_agent_that_cannot_be_made_is_told(runtime: Any, events: Any) -> None:
    def make() -> Doing:
        raise ValueError("cannot be made")

    await Doing.register(runtime, "never", make)
    with pytest.raises(ValueError, match="cannot be made"):
        await runtime.send_message(Ask(), agent("never"))
    assert [event for event in events if event["type"] == "AgentConstructionException"]


def spans_of(exporter: InMemorySpanExporter) -> list[tuple[str, str]]:
    finished = exporter.get_finished_spans()
    return sorted((span.name, span.kind.name) for span in finished)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Keeps finished spans."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    """Hands spans to the exporter."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


async def test_a_call_has_spans_for_its_making_its_way_and_its_handling(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async with LocalRuntime(tracer_provider=provider) as runtime:
        await host(runtime, "echo", echo)
        await runtime.send_message(Ask(), agent("echo"))
    assert spans_of(exporter) == [
        ("autogen create echo.(default)-A", "PRODUCER"),
        ("autogen process echo.(default)-A", "CONSUMER"),
        ("autogen send echo.(default)-A", "PRODUCER"),
    ]


async def test_a_publish_has_spans_for_its_making_each_handling_and_its_whole_way(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async with LocalRuntime(tracer_provider=provider) as runtime:
        for name in ("one", "two"):
            await host(runtime, name, note=collect([]), topics=("news",))
        await runtime.publish_message(Note(), TopicId("news", "d"))
        await runtime.stop_when_idle()
        runtime.start()
    names = [name for name, _ in spans_of(exporter)]
    assert names == [
        "autogen create news.(d)-T",
        "autogen process one.(d)-A",
        "autogen process two.(d)-A",
        "autogen publish news.(d)-T",
    ]


async def test_the_span_of_a_handler_that_raises_says_so(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async def fail(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        raise ValueError("broken")

    async with LocalRuntime(tracer_provider=provider) as runtime:
        await host(runtime, "bad", fail)
        with pytest.raises(ValueError, match="broken"):
            await runtime.send_message(Ask(), agent("bad"))
    (process,) = (span for span in exporter.get_finished_spans() if "process" in span.name)
    assert not process.status.is_ok
    assert process.events[0].name == "exception"


async def test_spans_of_calls_inside_a_handler_belong_to_its_span(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("echo")

    async with LocalRuntime(tracer_provider=provider) as runtime:
        await host(runtime, "echo", echo)
        await host(runtime, "outer", outer)
        await runtime.send_message(Ask(), agent("outer"))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    inner, parent = spans["autogen process echo.(default)-A"], spans["autogen process outer.(default)-A"]
    assert inner.context is not None
    assert parent.context is not None
    assert inner.context.trace_id == parent.context.trace_id


@pytest.mark.parametrize("how", ["no such type", "discarded by stop"])
async def test_the_span_of_a_publish_ends_however_its_messages_end(
    provider: TracerProvider, exporter: InMemorySpanExporter, how: str
) -> None:
    runtime = LocalRuntime(tracer_provider=provider)
    await host(runtime, "reader", note=collect([]), topics=("news",))
    if how == "no such type":
        await runtime.add_subscription(TypeSubscription("news", "nobody"))
    await runtime.publish_message(Note(), TopicId("news", "d"))
    runtime.start()
    if how == "no such type":
        await runtime.stop_when_idle()
    else:
        await runtime.stop()
    await runtime.close()
    assert "autogen publish news.(d)-T" in [name for name, _ in spans_of(exporter)]


async def test_autogens_switch_turns_spans_off(
    provider: TracerProvider, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEN_DISABLE_RUNTIME_TRACING", "true")
    async with LocalRuntime(tracer_provider=provider) as runtime:
        await host(runtime, "echo", echo)
        await runtime.send_message(Ask(), agent("echo"))
    assert not exporter.get_finished_spans()


async def test_events_show_a_whole_run_with_sender_receiver_kind_and_stage(runtime: Any, events: Any) -> None:
    async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        await agent.publish_message(Note(), TopicId("news", "d"))
        return await agent.call("echo", "inner")

    await host(runtime, "echo", echo)
    await host(runtime, "outer", outer)
    await host(runtime, "reader", note=collect([]), topics=("news",))
    await runtime.send_message(Ask(), agent("outer"))
    await runtime.stop_when_idle()
    runtime.start()
    trace = [(event["sender"], event["receiver"]) for event in events if event["type"] == "Message"]
    assert ("outer/default", "news/d") in trace
    assert ("outer/default", "echo/default") in trace
    assert ("echo/default", "outer/default") in trace
    assert all(event["kind"] and event["delivery_stage"] for event in events)
