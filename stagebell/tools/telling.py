"""What those who listen are told of a tool at work: AutoGen's span and event. Almost free when nobody does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from autogen_core import trace_tool_span
from autogen_core.logging import ToolCallEvent

from stagebell.runtime.engine.events import event_logger, pick_tracer


async def traced(work: Awaitable[Any], name: str, description: str, call_id: str) -> Any:
    """Await a tool, within a span when spans are kept."""
    tracer = pick_tracer(None)
    if tracer is None:
        return await work
    with trace_tool_span(name, tracer=tracer, tool_description=description, tool_call_id=call_id):
        return await work


def tell_call(name: str, shown: Callable[[], dict[str, Any]], result: Any) -> None:
    """A tool has returned; `shown` gives its arguments as they may be seen."""
    if event_logger.isEnabledFor(logging.INFO):
        event_logger.info(ToolCallEvent(tool_name=name, arguments=shown(), result=str(result)))
