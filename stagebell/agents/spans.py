"""A request to a model as a span, after OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from autogen_core.models import CreateResult
from opentelemetry.trace import SpanKind, Tracer

from stagebell.agents.context import RunContext
from stagebell.runtime.engine.hiding import masked_span


def tracer_of(context: RunContext[Any]) -> Tracer | None:
    """Makes the spans of a run; None when none are kept."""
    tracer: Tracer | None = getattr(context.runtime, "tracer", None)
    return tracer


async def spanned(answer: Awaitable[CreateResult], context: RunContext[Any], tracer: Tracer) -> CreateResult:
    """Await an answer of the model within a span. Raises what that raises."""
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "autogen",
        "gen_ai.agent.name": context.agent.type,
        "gen_ai.conversation.id": context.agent.key,
        "stagebell.run_id": context.run_id,
        "stagebell.step": context.step + 1,
    }
    with masked_span(tracer, f"chat {context.agent.type}", SpanKind.CLIENT, attributes) as span:
        result = await answer
        span.set_attribute("gen_ai.usage.input_tokens", result.usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", result.usage.completion_tokens)
        span.set_attribute("gen_ai.response.finish_reasons", [result.finish_reason])
        return result
