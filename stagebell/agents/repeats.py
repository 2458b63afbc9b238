"""A model that calls the same tools again and again, and gets the same answers, will not stop by itself."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from stagebell.agents.state import Run
from stagebell.messages.tool_calls import ToolCall, ToolResult


def after_round(
    run: Run, limit: int, latest: tuple[Sequence[ToolCall], Sequence[ToolResult]]
) -> tuple[tuple[str, int], str | None]:
    """The count of equal rounds after the latest one, and why the run ends, if so many are too many."""
    calls, results = latest
    digest = _digest(calls, results)
    count = run.rounds[1] + 1 if calls and digest == run.rounds[0] else 1
    if count < limit:
        return (digest, count), None
    names = ", ".join(dict.fromkeys(call.name for call in calls))
    return (digest, count), f"the model called {names} {count} times in a row, with the same arguments and results"


def _digest(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> str:
    by_id = {result.call_id: result for result in results}
    hashed = blake2b(digest_size=12)
    for call in calls:
        result = by_id.get(call.id)
        said = "" if result is None else f"{result.is_error}{result.text}"
        hashed.update(f"{call.name}\0{''.join(call.arguments.split())}\0{said}\1".encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()
