"""What an agent works with is in nothing that is kept: no secrets, no addresses; after a restore it is made anew."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from stagebell import LocalRuntime
from stagebell.agents.context import RunContext
from stagebell.agents.limits import Limits
from stagebell.agents.runs import Runs
from stagebell.testing import ScriptedModel
from stagebell.tools.context import ToolContext
from stagebell.tools.guardrails import Guardrail, Subject
from stagebell.tools.tool import tool
from tests.support.loops import host_model, run, says, wants

pytestmark = pytest.mark.runtime

SECRETS = "no way to postgres://shop:sesame@10.0.0.7/orders with Bearer abcdef123456 for <Pool object at 0x7f12ab>"
LEAKED = re.compile(r"sesame|abcdef123456| at 0x")


@pytest.fixture
async def runtime() -> AsyncIterator[LocalRuntime]:
    """In memory, started."""
    async with LocalRuntime() as runtime:
        yield runtime


class Odd(BaseModel):
    """Facts that hold nothing yet."""

    connection: Any = None


def leaks(*given: Any, **named: Any) -> Any:
    """A function of a user's that fails, and tells too much."""
    raise RuntimeError(SECRETS)


@tool(effects="none", name="leaks")
async def leaking() -> None:
    """Fails."""
    raise ConnectionError(SECRETS)


@tool(effects="none")
async def look() -> str:
    """Look."""
    return "seen"


def strict(subject: Subject) -> Any:
    raise RuntimeError(SECRETS)


PLACES: dict[str, dict[str, Any]] = {
    "model": {"model": ScriptedModel(leaks), "limits": Limits(model_retries=0)},
    "dependencies": {"deps": leaks},
    "instructions": {"instructions": leaks},
    "tool": {"tools": [leaking], "model": says(wants("leaks"), "done")},
    "authorise": {"tools": [tool(look.function, name="look", authorise=leaks)], "model": says(wants("look"), "done")},
    "validator": {"output_validators": [leaks]},
    "update": {"tools": [look], "model": says(wants("look"), "done"), "business": Odd, "update": leaks},
    "hook": {"hooks": [leaks]},
    "guardrail": {"guardrails": [Guardrail(strict, at="input")]},
    "cost": {"cost": leaks},
    "tools of a step": {"tools_for_step": leaks},
}


@pytest.mark.parametrize("place", PLACES)
async def test_what_went_wrong_is_kept_without_secrets(runtime: LocalRuntime, place: str) -> None:
    options = dict(PLACES[place])
    await host_model(runtime, options.pop("model", None) or ScriptedModel(lambda *given: "done"), **options)
    result = await run(runtime)
    kept = json.dumps([dict(await runtime.save_state()), result.model_dump(mode="json")], ensure_ascii=False)
    assert "no way to postgres" in kept
    assert LEAKED.findall(kept) == []


class Shop:
    """What tools work with."""

    def __init__(self, name: str) -> None:
        self.name = name


async def test_a_restored_run_works_with_new_dependencies() -> None:
    @tool(effects="none")
    async def where(context: ToolContext[Shop]) -> str:
        """Where it works."""
        return context.deps.name

    def instructed(context: RunContext[Shop]) -> str:
        return f"You work at {context.deps.name}."

    model = says(wants("where"), wants("where"), "done")
    options: dict[str, Any] = {"tools": [where], "instructions": instructed}
    async with LocalRuntime() as first:
        await host_model(first, model, deps=lambda key: Shop(f"old {key}"), **options)
        handle = await Runs(first).start("assistant", "go", conversation="c", deps_key="shop", paused=True)
        await handle.step()
        await handle.step()
        saved = json.loads(json.dumps(dict(await first.save_state())))
    async with LocalRuntime() as second:
        await host_model(second, model, deps=lambda key: Shop(f"new {key}"), **options)
        await second.load_state({"assistant/c": saved["assistant/c"]})
        again = Runs(second).get(handle.run_id)
        await again.resume()
        assert (await again.result()).output == "done"
        found = [each.result.value for each in (await again.state()).conversation if each.kind == "returned"]
    assert found == ["old shop", "new shop"]
    assert model.requests[-1].messages[0].content == "You work at new shop."
