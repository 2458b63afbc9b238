"""A typed function becomes a tool."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any

import pytest
from autogen_core import EVENT_LOGGER_NAME, CancellationToken
from autogen_core.tools import Tool
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, Field

from stagebell.errors import InvalidArguments, ToolError, ToolRefused
from stagebell.tools.context import ToolContext
from stagebell.tools.tool import tool
from stagebell.tools.values import NotJson, as_json

pytestmark = pytest.mark.unit


@dataclass
class Shop:
    name: str


class Line(BaseModel):
    item: str
    count: int = 1


CONTEXT = ToolContext(Shop("corner"), "run", "call")


@tool
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool(effects="none", name="who")
def who_sells(context: ToolContext[Shop], what: str) -> str:
    return f"{context.deps.name}: {what}, {context.idempotency_key}"


async def test_a_tool_without_options() -> None:
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert await add.run({"a": 1}, CONTEXT) == 3
    assert add.validate({"a": "1"}) == {"a": 1, "b": 2}


async def test_a_tool_with_options_and_a_context() -> None:
    assert who_sells.name == "who"
    assert await who_sells.run({"what": "tea"}, CONTEXT) == "corner: tea, run:call"
    assert list(who_sells.parameters["properties"]) == ["what"]


async def test_made_by_a_call() -> None:
    assert tool(lambda: 1, name="one").name == "one"
    assert await tool(Adder(), name="adder").run({"a": 1}, CONTEXT) == 11
    assert await tool(Adder().twice).run({"a": 1}, CONTEXT) == 2
    assert await tool(partial(Adder().both, 5), name="five").run({"b": 2}, CONTEXT) == 7


class Adder:
    async def __call__(self, a: int) -> int:
        return a + 10

    async def twice(self, a: int) -> int:
        return 2 * a

    def both(self, a: int, b: int) -> int:
        return a + b


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "a: Field required"),
        ({"a": "x"}, "a: Input should be a valid integer"),
        ({"a": 1, "c": 3}, "c: Extra inputs"),
    ],
)
async def test_wrong_arguments_never_reach_the_body(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        await add.run(arguments, CONTEXT)


async def test_code_that_calls_the_tool_is_checked_too() -> None:
    assert await add(1, b=1) == 2
    assert who_sells(CONTEXT, "tea") == "corner: tea, run:call"
    for wrong in (lambda: add("x"), lambda: add(1, 2, 3), lambda: add(1, a=1)):
        with pytest.raises(InvalidArguments):
            wrong()


async def test_what_blocks_runs_in_a_thread() -> None:
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await tool(where).run({}, CONTEXT) is False


async def test_names_that_models_reserve_can_be_parameters() -> None:
    async def odd(schema: int, copy: int, model_config: int, title: str) -> int:
        return schema + copy + model_config + len(title)

    arguments = {"schema": 1, "copy": 2, "model_config": 3, "title": "four"}
    assert await tool(odd).run(arguments, CONTEXT) == 10
    assert list(tool(odd).parameters["properties"]) == list(arguments)


async def test_arguments_arrive_as_their_types() -> None:
    async def order(lines: list[Line], on: date, limit: Annotated[float, Field(gt=0)] = 1.5) -> str:
        return f"{lines[0].item} {lines[0].count} {on.year} {limit}"

    ours = tool(order)
    arguments = {"lines": [{"item": "tea"}], "on": "2030-01-02"}
    assert await ours.run(arguments, CONTEXT) == "tea 1 2030 1.5"
    normal = ours.validate(arguments)
    assert normal == {"lines": [{"item": "tea", "count": 1}], "on": "2030-01-02", "limit": 1.5}
    assert await ours.run(normal, CONTEXT) == "tea 1 2030 1.5"


def with_star(*names: str) -> None: ...
def with_stars(**names: str) -> None: ...
def without_annotation(name) -> None: ...
def positional(name: str, /) -> None: ...
def late_context(name: str, context: ToolContext[Shop]) -> None: ...
def no_json(shop: threading.Lock) -> None: ...
def unknown(name: Unknown) -> None: ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (with_star, "has no name of its own"),
        (with_stars, "has no name of its own"),
        (without_annotation, "'name' has no annotation"),
        (positional, "has no name of its own"),
        (late_context, "must be the first one"),
        (no_json, "cannot be described"),
        (unknown, "'Unknown' is not known"),
        (lambda: None, "letters, digits"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(ToolRefused, match=why):
        tool(function)


@dataclass
class Receipt:
    line: Line
    on: date
    by: Any = None


async def test_results_are_json() -> None:
    async def buy() -> Receipt:
        return Receipt(Line(item="tea"), date(2030, 1, 2))

    assert await tool(buy).run({}, CONTEXT) == {"line": {"item": "tea", "count": 1}, "on": "2030-01-02", "by": None}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "it is a object"),
        ({"a": [1, object()]}, r"it\.a\[1\] is a object"),
        (Receipt(Line(item="tea"), date(2030, 1, 2), by=threading.Lock()), r"it\.by is a lock"),
        (b"\xff", "it is a bytes"),
        (float("nan"), r"it is a float \(nan\)"),
        ([1.0, {"a": float("inf")}], r"it\[1\]\.a is a float \(inf\)"),
        (Receipt(Line(item="tea"), date(2030, 1, 2), by=float("-inf")), r"it\.by is a float \(-inf\)"),
        ({"\ud800": object()}, r"it\.\\ud800 is a object"),
    ],
)
def test_what_is_no_json_is_named(value: Any, path: str) -> None:
    with pytest.raises(NotJson, match=path) as refused:
        as_json(value, "it")
    assert " at 0x" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("a\ud800b", "a\\ud800b"),
        ({"k\ud800": ["\udfff", 1]}, {"k\\ud800": ["\\udfff", 1]}),
        (Line(item="\ud800"), {"item": "\\ud800", "count": 1}),
        (
            Receipt(Line(item="\ud800"), date(2030, 1, 2)),
            {"line": {"item": "\\ud800", "count": 1}, "on": "2030-01-02", "by": None},
        ),
        ("日本\0😀", "日本\0😀"),
    ],
)
def test_what_utf_8_cannot_write_is_escaped(value: Any, escaped: Any) -> None:
    assert as_json(value) == escaped
    json.dumps(as_json(value), ensure_ascii=False).encode()


def test_what_contains_itself_is_no_json() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotJson):
        as_json(value)


async def test_a_tool_is_one_of_autogens_too() -> None:
    assert isinstance(add, Tool)
    assert await add.run_json({"a": 1}, CancellationToken(), call_id="1") == 3
    assert add.return_value_as_string({"a": "ä"}) == '{"a":"ä"}'
    assert add.args_type().model_fields.keys() == {"a", "b"}
    with pytest.raises(ToolError, match="ToolContext"):
        await who_sells.run_json({"what": "tea"}, CancellationToken())


async def test_spans_and_events_of_autogen_tell_of_a_tool(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    await add.run({"a": 1}, CONTEXT)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    with caplog.at_level(logging.INFO, EVENT_LOGGER_NAME):
        await add.run({"a": 1}, CONTEXT)
        with pytest.raises(InvalidArguments):
            await add.run({}, CONTEXT)
    (span,) = exporter.get_finished_spans()
    assert span.name == "execute_tool add"
    assert dict(span.attributes or {})["gen_ai.tool.call.id"] == "call"
    (event,) = [json.loads(message) for message in caplog.messages]
    assert (event["tool_name"], event["arguments"], event["result"]) == ("add", {"a": 1, "b": 2}, "3")


async def test_cancelling_reaches_the_body() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(tool(wait).run({}, CONTEXT))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
