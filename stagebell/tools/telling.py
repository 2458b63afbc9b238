"""What those who listen are told of a tool at work: AutoGen's span and event. Almost free when nobody does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from autogen_core.logging import ToolCallEvent
from opentelemetry.trace import SpanKind, Tracer

from stagebell.runtime.engine.events import event_logger, pick_tracer
from stagebell.runtime.engine.hiding import masked_span
from stagebell.runtime.engine.turn import current_turn

_NO_RUNTIME: Final = object()


def tracer_here() -> Tracer | None:
    """The tracer of the runtime whose turn it is; outside of turns the application's; None when no spans are kept."""
    turn = current_turn.get()
    runtime = None if turn is None else getattr(turn.activation.agent, "runtime", None)
    tracer: Any = getattr(runtime, "tracer", _NO_RUNTIME)
    return pick_tracer(None) if tracer is _NO_RUNTIME else tracer


def traced(work: Awaitable[Any], name: str, description: str, call_id: str) -> Awaitable[Any]:
    """A tool at work, within a span when spans are kept."""
    tracer = tracer_here()
    return work if tracer is None else _within_span(tracer, work, name, description, call_id)


async def traced_unless_it_does(work: Awaitable[Any], name: str, description: str, call_id: str) -> Any:
    """The same for a tool of AutoGen's, which makes a span of its own where the application keeps them all."""
    tracer = tracer_here()
    if tracer is None or pick_tracer(None) is not None:
        return await work
    return await _within_span(tracer, work, name, description, call_id)


async def _within_span(tracer: Tracer, work: Awaitable[Any], name: str, description: str, call_id: str) -> Any:
    """AutoGen's `trace_tool_span`, with credentials hidden in what the tool raises."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.system": "autogen",
        "gen_ai.tool.name": name,
        "gen_ai.tool.description": description,
        "gen_ai.tool.call.id": call_id,
    }
    with masked_span(tracer, f"execute_tool {name}", SpanKind.INTERNAL, attributes):
        return await work


def tell_call(name: str, shown: Callable[[], dict[str, Any]], result: Any) -> None:
    """A tool has returned; `shown` gives its arguments as they may be seen."""
    if event_logger.isEnabledFor(logging.INFO):
        event_logger.info(ToolCallEvent(tool_name=name, arguments=shown(), result=str(result)))
