"""A pytest plugin that puts other classes in the place of AutoGen's while AutoGen's own tests run.

The runtime is exchanged, and with it the agent that runs tools, when this module is imported (`-p plugin`): before a
test file, and before `autogen_agentchat`, says `from autogen_core import SingleThreadedAgentRuntime`. The tests stay as
published.

Read from the environment:
    PEER_REPLACEMENT   `module:Class` of the runtime; empty means AutoGen's own classes (the reference run)
    PEER_REPORT        where to write what happened, as JSON, for run.py
"""

import asyncio
import functools
import importlib
import inspect
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autogen_core
import autogen_core.tool_agent
import pytest

_made = 0
_outcomes: Counter[str] = Counter()


def _load(name: str) -> type:
    module, _, attribute = name.partition(":")
    loaded: type = getattr(importlib.import_module(module), attribute)
    return loaded


def _after_start(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same coroutine function, which first waits for the start that was only scheduled."""

    @functools.wraps(method)
    async def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        starting = self.__dict__.get("_peer_starting")
        if starting is not None:
            await asyncio.shield(starting)
        return await method(self, *args, **kwargs)

    return waiting


def _with_plain_start(runtime: type) -> type:
    """AutoGen's tests call `start()` without awaiting it; give them that, whatever the class has."""
    start = getattr(runtime, "start", None)
    if not inspect.iscoroutinefunction(start):
        return runtime

    def schedule(self: Any) -> None:
        self._peer_starting = asyncio.ensure_future(start(self))

    body: dict[str, Any] = {
        name: _after_start(method)
        for name, method in inspect.getmembers(runtime, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    body.update(start=schedule, __module__=runtime.__module__, __doc__=runtime.__doc__)
    return type(runtime.__name__, (runtime,), body)


def _counted(runtime: Any) -> type:
    """Count the instances, so that a run which never met our class cannot pass for one that did."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        global _made
        _made += 1
        runtime.__init__(self, *args, **kwargs)

    return type(runtime.__name__, (runtime,), {"__init__": __init__, "__module__": runtime.__module__})


def _exchange() -> None:
    name = os.environ.get("PEER_REPLACEMENT", "")
    runtime = _with_plain_start(_load(name)) if name else autogen_core.SingleThreadedAgentRuntime
    setattr(autogen_core, "SingleThreadedAgentRuntime", _counted(runtime))  # noqa: B010
    if name:
        setattr(autogen_core.tool_agent, "ToolAgent", _load("stagebell:ToolAgent"))  # noqa: B010


_exchange()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.skipped:
        _outcomes[report.outcome] += 1
    elif report.failed:
        _outcomes["error"] += 1


def pytest_sessionfinish() -> None:
    report = os.environ.get("PEER_REPORT")
    if report:
        Path(report).write_text(json.dumps({"instances": _made, **_outcomes}))
