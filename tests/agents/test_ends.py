"""What the outside sees of runs and calls that have ended: a line in the log, and metrics."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from stagebell import LocalRuntime
from stagebell.agents.limits import Limits
from tests.support.loops import host_model, run, says, wants

pytestmark = pytest.mark.runtime


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_the_end_of_a_run_is_a_line_in_the_log_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    """One can tell a run that came to its end from one that was exhausted, by fields alone."""
    with caplog.at_level(logging.INFO, "stagebell"):
        async with LocalRuntime() as runtime:
            await host_model(runtime, says(wants("add", a=1, b=1), "2"), tools=[add])
            await host_model(
                runtime, says(wants("add", a=1, b=1)), type="short", tools=[add], limits=Limits(max_steps=1)
            )
            ended, exhausted = await run(runtime), await run(runtime, type="short")
    lines = [record for record in caplog.records if hasattr(record, "run_id")]
    fields = [tuple(vars(line)[name] for name in ("run_id", "status", "reason", "step", "last_tool")) for line in lines]
    assert fields == [
        (ended.run_id, "succeeded", "final_output", 2, "add"),
        (exhausted.run_id, "failed", "max_steps", 1, "add"),
    ]
    assert lines[0].getMessage() == f"run {ended.run_id} has succeeded (final_output) at step 2, the last tool was add"


PROGRAM = """
import asyncio, json
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from stagebell import Limits, LocalRuntime, agent_tool, tool
from tests.support.loops import host_model, run, says, wants

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

def half(n: int) -> float:
    if n == 0:
        raise ValueError("nothing to halve")
    return n / 2

pay = tool(lambda: None, name="pay", effects="side", requires_approval=True)

async def main():
    async with LocalRuntime() as runtime:
        calls = [wants("half", n=2), wants("half", n=0), wants("half", n="x"), wants("made_up_by_a_model")]
        tools = [half, agent_tool("below", description="…")]
        await host_model(runtime, says(calls, wants("below", task="x"), "done"), tools=tools)
        await host_model(runtime, says("said"), type="below")
        await host_model(runtime, says(wants("pay")), type="waits", tools=[pay], limits=Limits(timeout=0.2))
        await run(runtime)
        await run(runtime, type="waits")
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = point.value if hasattr(point, "value") else point.count
                    print(json.dumps([metric.name, metric.unit, dict(point.attributes), value]))

asyncio.run(main())
"""


def test_what_has_ended_is_counted_by_how_it_ended() -> None:
    """In a program that has set a meter provider, as one does who wants to see it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]

    def of(name: str, *labels: str) -> dict[tuple[str, ...], int]:
        return {tuple(point[label] for label in labels): value for given, _, point, value in told if given == name}

    codes = {
        ("half", "ok"): 1,
        ("half", "business"): 1,
        ("half", "invalid_arguments"): 1,
        ("(unknown)", "unknown_tool"): 1,
        ("pay", "waiting"): 1,
    }
    assert of("stagebell.tool.calls", "tool", "code") == codes
    assert of("stagebell.tool.duration", "tool", "code") == codes
    assert of("stagebell.runs", "agent", "status", "reason") == {
        ("assistant", "succeeded", "final_output"): 1,
        ("below", "succeeded", "final_output"): 1,
        ("waits", "failed", "timeout"): 1,
    }
    assert of("stagebell.run.steps", "agent") == {("assistant",): 4, ("waits",): 1}
    assert set(of("stagebell.run.tokens", "agent", "kind")) == {
        (agent, kind) for agent in ("assistant", "waits") for kind in ("prompt", "completion")
    }
    assert {unit for name, unit, *_ in told if name == "stagebell.tool.duration"} == {"s"}
