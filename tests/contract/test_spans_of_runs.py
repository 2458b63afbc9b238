"""Where the time of a run goes is seen in its spans, on every runtime: requests to the model, tools, their turns."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stagebell.agents.limits import Limits
from stagebell.testing import ScriptedModel
from stagebell.tools.tool import tool
from tests.support.loops import host_model, run, says, wants


@tool(effects="none", parallel_safe=True)
async def look(place: str) -> str:
    """Look."""
    return f"seen {place}"


def kept() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def above(span: ReadableSpan, spans: tuple[ReadableSpan, ...]) -> list[str]:
    """The names of the spans that it lies in, the next one first."""
    by_id = {each.context.span_id: each for each in spans if each.context is not None}
    names: list[str] = []
    while span.parent is not None and span.parent.span_id in by_id:
        span = by_id[span.parent.span_id]
        names.append(span.name)
    return names


async def test_requests_tools_and_turns_are_spans_of_their_own(make_runtime: Any, start: Any) -> None:
    provider, exporter = kept()
    runtime = make_runtime(tracer_provider=provider)
    await host_model(runtime, says([wants("look", place="here"), wants("look", place="there")], "done"), tools=[look])
    await start(runtime)
    result = await run(runtime)
    spans = exporter.get_finished_spans()
    chats = [each for each in spans if each.name == "chat assistant"]
    tools = [each for each in spans if each.name == "execute_tool look"]
    assert (len(chats), len(tools)) == (2, 2)
    for span in (*chats, *tools):
        turn = above(span, spans)
        assert turn, span.name
        assert "assistant" in turn[-1]
        assert not {"chat assistant", "execute_tool look"} & set(turn)
    told = [dict(each.attributes or {}) for each in chats]
    assert [each["stagebell.run_id"] for each in told] == [result.run_id] * 2
    assert [each["stagebell.step"] for each in told] == [1, 2]
    assert told[0]["gen_ai.operation.name"] == "chat"
    assert sum(each["gen_ai.usage.input_tokens"] for each in told) == result.usage.prompt_tokens
    first, second = chats
    assert all((first.end_time or 0) <= (each.start_time or 0) for each in tools)
    assert all((each.end_time or 0) <= (second.start_time or 0) for each in tools)


async def test_a_request_that_fails_says_so_without_credentials(make_runtime: Any, start: Any) -> None:
    def down(*given: Any) -> Any:
        raise ConnectionError("no way to https://me:sesame@models.example")

    provider, exporter = kept()
    runtime = make_runtime(tracer_provider=provider)
    await host_model(runtime, ScriptedModel(down), limits=Limits(model_retries=0))
    await start(runtime)
    assert (await run(runtime)).reason == "model_error"
    (chat,) = [each for each in exporter.get_finished_spans() if each.name == "chat assistant"]
    assert not chat.status.is_ok
    assert "no way to" in (chat.status.description or "")
    assert "sesame" not in chat.to_json()
