"""What can be counted and watched, as OpenTelemetry metrics of the application's own meter provider.

Instruments are made once. Until the application sets a provider, before or after that, they do nothing.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.metrics import get_meter

_METER: Final = get_meter("stagebell")
_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_calls: Final = _METER.create_counter("stagebell.tool.calls", "{call}", "calls of tools, by how they ended")
_call_time: Final = _METER.create_histogram(
    "stagebell.tool.duration", "s", "how long calls of tools took", explicit_bucket_boundaries_advisory=_SECONDS
)
_runs: Final = _METER.create_counter("stagebell.runs", "{run}", "runs that have ended, by how and why")
_steps: Final = _METER.create_counter("stagebell.run.steps", "{step}", "answers of models in runs that have ended")
_tokens: Final = _METER.create_counter("stagebell.run.tokens", "{token}", "tokens of runs that have ended")


def count_call(tool: str, code: str, seconds: float) -> None:
    """A call of a tool has ended.

    Args:
        tool: its name; that of a tool that does not exist is no label, since models make up any number of them.
        code: "ok", "waiting" (for a person), or the code of its error.
        seconds: how long it took.
    """
    labels = {"tool": tool, "code": code}
    _calls.add(1, labels)
    _call_time.record(seconds, labels)


def count_run(agent: str, status: str, reason: str) -> None:
    """A run of an agent of this type has ended, so and for this reason."""
    _runs.add(1, {"agent": agent, "status": status, "reason": reason})


def count_usage(agent: str, steps: int, prompt_tokens: int, completion_tokens: int) -> None:
    """What a run took, those that it has started included: so it is told of runs that no other run has started.

    Args:
        agent: the type of its agent.
        steps: answers of models.
        prompt_tokens: that they were asked with.
        completion_tokens: of the answers.
    """
    _steps.add(steps, {"agent": agent})
    _tokens.add(prompt_tokens, {"agent": agent, "kind": "prompt"})
    _tokens.add(completion_tokens, {"agent": agent, "kind": "completion"})
