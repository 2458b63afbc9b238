"""Factories that make no agent, and agents whose state is none: named in an error, and harmless to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from autogen_core import AgentId

from stagebell.errors import MalformedState, RemoteHandlerError
from tests.support.agents import Ask, Counting, Doing, agent, echo


class Saving(Doing):
    """Returns as its state whatever the test hands it."""

    state: Any = None

    def __init__(self) -> None:
        super().__init__(echo)

    async def save_state(self) -> Any:
        return self.state


NO_AGENTS: dict[str, Any] = {"nothing": None, "text": "an agent", "class": Doing, "object": object()}


@pytest.mark.parametrize("case", NO_AGENTS)
async def test_a_factory_that_makes_no_agent_is_named(runtime: Any, start: Any, case: str) -> None:
    await runtime.register_factory("broken", lambda: NO_AGENTS[case])
    await Counting.register(runtime, "counter", Counting)
    await start(runtime)
    with pytest.raises(TypeError, match=r"factory of agent type 'broken' returned .*, which is no Agent"):
        await runtime.send_message(Ask(), AgentId("broken", "x"))
    assert await runtime.send_message(Ask(), agent("counter")) == 1
    assert await runtime.save_state() == {"counter/default": {"count": 1}}
    await runtime.close()


@pytest.mark.parametrize("state", [None, [], [("a", 1)], "text"], ids=["none", "empty-list", "list", "text"])
async def test_a_state_that_is_no_mapping_is_refused(runtime: Any, start: Any, state: Any) -> None:
    await Saving.register(runtime, "saving", Saving)
    await start(runtime)
    Saving.state = state
    with pytest.raises(MalformedState, match="expected a mapping"):
        await runtime.agent_save_state(agent("saving"))


class RaisingArgs(Exception):
    """Cannot be described."""

    @property
    def args(self) -> Any:
        raise RuntimeError("no args")


def with_bytes_as_line() -> Exception:
    info: Any = ("f", 1, 2, b"bytes")
    return SyntaxError("a", info)


ODD: dict[str, Callable[[], Exception]] = {"args-raise": RaisingArgs, "syntax-error-with-bytes": with_bytes_as_line}


@pytest.mark.parametrize("case", ODD)
async def test_an_exception_that_cannot_be_described_reaches_the_caller(runtime: Any, start: Any, case: str) -> None:
    async def fails(_: Doing, __: Ask, ___: Any) -> Any:
        raise ODD[case]()

    await Doing.register(runtime, "doing", lambda: Doing(fails))
    await start(runtime)
    outcome: BaseException | None = None
    try:
        await asyncio.wait_for(runtime.send_message(Ask(), agent("doing")), 5)
    except Exception as error:
        outcome = error
    assert isinstance(outcome, RaisingArgs | SyntaxError | RemoteHandlerError)
