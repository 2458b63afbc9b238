"""What people are shown of messages and errors has no credentials in it: log lines, events, spans."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from autogen_core import EVENT_LOGGER_NAME, FunctionCall, MessageContext, TopicId
from autogen_core.tool_agent import ToolException
from autogen_core.tools import FunctionTool
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stagebell import LocalRuntime
from stagebell.tools.agent import ToolAgent
from stagebell.tools.tool import tool
from tests.support.agents import Ask, Doing, Note, agent, echo, host

pytestmark = pytest.mark.runtime

DSN = "postgres://shop:hunter2hunter2@db.internal/orders"
BEARER = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.abcdefgh"


async def fail(agent: Doing, message: Any, ctx: MessageContext) -> None:
    raise ConnectionError(f"no answer of {DSN} to {BEARER}")


def secrets_in(text: str) -> list[str]:
    return [secret for secret in ("hunter2", "eyJhbG") if secret in text]


async def test_log_lines_and_tracebacks_hide_credentials(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    await host(runtime, "bad", fail, fail, topics=("news",))
    with caplog.at_level(logging.DEBUG):
        await runtime.publish_message(Note(text="x"), TopicId("news", "default"))
        await runtime.stop_when_idle()
        runtime.start()
        logging.getLogger("stagebell").warning("trying %s again: %s", DSN, "bye")
    assert "ConnectionError: no answer of postgres://shop:***@db.internal/orders" in caplog.text
    assert "trying postgres://shop:***@db.internal/orders again: bye" in caplog.text
    assert not secrets_in(caplog.text)
    assert all(record.exc_info is None for record in caplog.records)


async def test_a_traceback_without_credentials_is_left_to_whoever_formats_it(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("nothing to hide")
    except ValueError:
        logging.getLogger("stagebell").exception("it failed")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "ValueError: nothing to hide" in caplog.text


async def test_what_hides_nothing_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("stagebell").warning("%s has a %s", "agent/1", "reason")
    (record,) = caplog.records
    assert (record.msg, record.args) == ("%s has a %s", ("agent/1", "reason"))


async def test_events_hide_credentials(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    await host(runtime, "bad", fail)
    await host(runtime, "echo", echo)
    with caplog.at_level(logging.INFO, EVENT_LOGGER_NAME):
        with pytest.raises(ConnectionError, match="hunter2"):
            await runtime.send_message(Ask(text=DSN), agent("bad"))
        assert await runtime.send_message(Ask(text=DSN), agent("echo")) == DSN
    assert not secrets_in(caplog.text)
    assert caplog.text.count("shop:***@db.internal") >= 4


def spans_of(provider: TracerProvider) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def written(spans: Any) -> str:
    return "".join(str(span.to_json()) for span in spans)


async def test_spans_hide_credentials() -> None:
    provider = TracerProvider()
    exporter = spans_of(provider)
    async with LocalRuntime(tracer_provider=provider) as runtime:
        await host(runtime, "bad", fail, fail, topics=("news",))
        with pytest.raises(ConnectionError):
            await runtime.send_message(Ask(), agent("bad"))
        await runtime.publish_message(Note(), TopicId("news", "default"))
        await runtime.stop_when_idle()
        runtime.start()
    text = written(exporter.get_finished_spans())
    assert "no answer of postgres://shop:***@db.internal/orders" in text
    assert not secrets_in(text)


@tool(effects="none")
async def log_in(user: str, password: str) -> str:
    """Log in."""
    if user == "nobody":
        raise PermissionError(f"{user} may not use {DSN}")
    return f"welcome {user}, your token is sk-abcdefghijklmnop"


def find(user: str) -> str:
    """Look for somebody."""
    return f"{user} is here"


async def test_spans_of_tools_go_where_those_of_their_runtime_go(caplog: pytest.LogCaptureFixture) -> None:
    """As children of the span of the message; AutoGen's own tools too."""
    provider = TracerProvider()
    exporter = spans_of(provider)
    async with LocalRuntime(tracer_provider=provider) as runtime:
        tools = [log_in, FunctionTool(find, "Finds.")]
        await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", tools))
        with caplog.at_level(logging.INFO, EVENT_LOGGER_NAME):
            for name, given in (
                ("log_in", {"user": "ada", "password": "hunter2hunter2"}),
                ("log_in", {"user": "nobody", "password": "hunter2hunter2"}),
                ("find", {"user": "ada"}),
            ):
                call = FunctionCall(id=f"{name}-{given['user']}", name=name, arguments=json.dumps(given))
                try:
                    await runtime.send_message(call, agent("tools"))
                except ToolException:
                    assert given["user"] == "nobody"
    spans = {str((span.attributes or {}).get("gen_ai.tool.call.id", span.name)): span for span in finished(exporter)}
    for call_id in ("log_in-ada", "log_in-nobody", "find-ada"):
        span = spans[call_id]
        assert span.name == f"execute_tool {call_id.partition('-')[0]}"
        parent = next(other for other in finished(exporter) if span.parent and other.context == span.parent)
        assert parent.name == "autogen process tools.(default)-A"
    failed = spans["log_in-nobody"]
    assert (failed.attributes or {})["error.type"] == "PermissionError"
    assert "nobody may not use postgres://shop:***@db.internal" in str(failed.status.description)
    assert not secrets_in(written(finished(exporter)))
    calls = [record.getMessage() for record in caplog.records if '"ToolCall"' in record.getMessage()]
    assert [json.loads(call)["arguments"] for call in calls[:1]] == [{"user": "ada", "password": "***"}]
    assert not secrets_in("".join(caplog.messages))
    assert "sk-abc" not in "".join(caplog.messages)


def finished(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return list(exporter.get_finished_spans())
