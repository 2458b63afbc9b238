"""Models in tests: every tool called, one in the place of another, and no real one asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool

from stagebell.agents.stand_ins import UNCHANGED, deps_for, model_for
from stagebell.testing import EchoModel, ModelRequestForbidden, ScriptedModel, forbid_model_requests, override

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def no_real_models() -> None:
    """Nothing is forbidden here but by the tests themselves."""


TASK = UserMessage(content="go", source="user")


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def greet(name: str) -> str:
    """Greet."""
    return f"hello {name}"


TOOLS = [FunctionTool(add, "add"), FunctionTool(greet, "greet")]


async def test_the_echo_calls_every_tool_and_then_ends() -> None:
    """With arguments that the schemas allow; the end says what they returned."""
    model = EchoModel()
    asked = await model.create([TASK], tools=TOOLS)
    assert isinstance(asked.content, list)
    assert [call.name for call in asked.content] == ["add", "greet"]
    results: list[FunctionExecutionResult] = []
    for tool, call in zip(TOOLS, asked.content, strict=True):
        value = await tool.run_json(json.loads(call.arguments), _token())
        results.append(FunctionExecutionResult(content=str(value), call_id=call.id, name=call.name, is_error=False))
    said = AssistantMessage(content=asked.content, source="a")
    history: list[LLMMessage] = [TASK, said, FunctionExecutionResultMessage(content=results)]
    end = await model.create(history, tools=TOOLS)
    assert json.loads(str(end.content)) == {"add": "0", "greet": "hello a"}
    again = await model.create([*history, AssistantMessage(content="done", source="a"), TASK], tools=TOOLS)
    assert isinstance(again.content, list)
    assert len({call.id for call in [*asked.content, *again.content]}) == 4


async def test_the_echo_can_be_told_what_to_call_and_say() -> None:
    """Some tools alone, arguments of the test's own, a final output."""
    model = EchoModel(only=["greet"], arguments={"greet": {"name": "Ada"}}, output={"ok": True})
    asked = await model.create([TASK], tools=[tool.schema for tool in TOOLS])
    assert [(call.name, json.loads(call.arguments)) for call in asked.content if not isinstance(call, str)] == [
        ("greet", {"name": "Ada"})
    ]
    assert json.loads(str((await model.create([TASK])).content)) == {"ok": True}


def _token() -> Any:
    from autogen_core import CancellationToken

    return CancellationToken()


class Real(ScriptedModel):
    """In the place of a client that opens a socket."""


class Remote(ChatCompletionClient):
    """A client of somebody else, with nothing but the two methods."""

    opened = 0

    async def create(self, *args: Any, **options: Any) -> Any:
        """Opens a socket."""
        self.opened += 1

    def create_stream(self, *args: Any, **options: Any) -> Any:
        """Opens a socket."""
        self.opened += 1


Remote.__abstractmethods__ = frozenset()


async def test_no_real_model_is_asked_while_it_is_forbidden() -> None:
    """Neither in whole nor as a stream, nor by a class that is made meanwhile; afterwards all is as before."""
    client: Any = Remote()
    with forbid_model_requests():
        for ask in (client.create, client.create_stream):
            with pytest.raises(ModelRequestForbidden, match=r"Remote was about to be asked.*ScriptedModel"):
                await ask([TASK])

        class Later(Remote):
            async def create(self, *args: Any, **options: Any) -> Any:
                self.opened += 1

        later: Any = Later()
        with pytest.raises(ModelRequestForbidden):
            await later.create([TASK])
        assert (await ScriptedModel(["yes"]).create([TASK])).content == "yes"
        with forbid_model_requests(allow=[Remote]):
            pass
    await client.create([TASK])
    await later.create([TASK])
    assert client.opened == later.opened == 1


async def test_a_class_may_be_allowed() -> None:
    """A fake of the user's own."""
    client: Any = Remote()
    with forbid_model_requests(allow=[Remote]):
        await client.create([TASK])
    assert client.opened == 1


async def test_an_override_ends_with_its_block() -> None:
    """Inner blocks hold before outer ones; blocks of tasks that run at once leave each other alone."""
    own, outer, inner = (ScriptedModel([name]) for name in ("own", "outer", "inner"))
    with override("a", model=outer, deps="outer"):
        assert model_for("a", own) is outer
        assert model_for("b", own) is own
        with override("a", model=inner):
            assert (model_for("a", own), deps_for("a")) == (inner, "outer")
        assert model_for("a", own) is outer
    assert (model_for("a", own), deps_for("a")) == (own, UNCHANGED)

    first_in, second_in = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        with override("a", model=outer):
            first_in.set()
            await second_in.wait()
        assert model_for("a", own) is inner

    async def second() -> None:
        await first_in.wait()
        with override("a", model=inner):
            second_in.set()
            await one

    one = asyncio.ensure_future(first())
    await second()
    assert model_for("a", own) is own
