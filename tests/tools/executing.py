"""What the tests of the executor share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.tools.executor import Executor
from stagebell.tools.ledger import Earlier
from stagebell.tools.lifecycle import Step, ToolEvent
from stagebell.tools.toolset import Toolset


@dataclass(frozen=True)
class Said:
    """What a person decided."""

    approved: bool
    arguments: Mapping[str, JsonValue] | None = None
    reason: str = ""


@dataclass
class MemoryLedger:
    """What would be in the store; a new executor finds it again, as a worker does that takes over."""

    attempts: dict[str, int] = field(default_factory=dict)
    results: dict[str, ToolResult] = field(default_factory=dict)

    async def open(self, key: str) -> Earlier:
        earlier = Earlier(self.attempts.get(key, 0), self.results.get(key))
        self.attempts[key] = earlier.attempts + 1
        return earlier

    async def close(self, key: str, result: ToolResult) -> ToolResult:
        return self.results.setdefault(key, result)

    async def look(self, key: str) -> Earlier:
        return Earlier(self.attempts.get(key, 0), self.results.get(key))


class Bench:
    """An executor whose events are kept."""

    def __init__(self, *tools: Any, deps: Any = None, ledger: Any = None, **options: Any) -> None:
        self.events: list[ToolEvent] = []
        self.deps = deps
        self.executor = Executor[Any](Toolset[Any](tools), ledger=ledger, sink=self.events.append, **options)

    async def run(self, name: str, arguments: str = "{}", *, id: str = "1", **options: Any) -> Any:
        call = ToolCall(id=id, name=name, arguments=arguments)
        return await self.executor.run(call, run_id="run", deps=self.deps, **options)

    async def value(self, name: str, arguments: str = "{}", **options: Any) -> Any:
        result = await self.run(name, arguments, **options)
        assert not result.is_error, result
        return result.value

    async def error(self, name: str, arguments: str = "{}", **options: Any) -> tuple[ErrorCode, str]:
        result = await self.run(name, arguments, **options)
        assert result.is_error
        assert result.call_id == options.get("id", "1")
        return result.code, result.text

    @property
    def steps(self) -> list[Step]:
        return [event.step for event in self.events]

    def outcomes(self, *outcomes: str) -> list[tuple[Step, str]]:
        return [(event.step, event.outcome) for event in self.events if event.outcome in outcomes]
