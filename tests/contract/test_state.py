"""State: saved, loaded, moved between runtimes, and refused when it is not what it should be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_core import AgentId, AgentInstantiationContext, MessageContext, SingleThreadedAgentRuntime

import stagebell
from stagebell.errors import AlreadyRegistered, MalformedState
from tests.support.agents import Ask, Counting, Doing, Interleaved, OnlyCalls, agent, echo, host


async def counted(runtime: Any, start: Any, times: int = 3) -> Any:
    await Counting.register(runtime, "counter", Counting)
    await start(runtime)
    for _ in range(times):
        await runtime.send_message(Ask(), agent("counter"))
    return runtime


async def test_an_agents_state_can_be_saved_and_loaded(runtime: Any, start: Any) -> None:
    await counted(runtime, start)
    state = await runtime.agent_save_state(agent("counter"))
    assert state == {"count": 3}
    await runtime.agent_load_state(agent("counter", "other"), json.loads(json.dumps(state)))
    assert await runtime.send_message(Ask(), agent("counter", "other")) == 4


async def test_a_runtimes_state_is_a_mapping_of_agents_that_json_can_write(
    runtime: Any, start: Any, make_runtime: Any
) -> None:
    await counted(runtime, start)
    await runtime.send_message(Ask(), agent("counter", "with/slash"))
    saved = await runtime.save_state()
    assert saved == {"counter/default": {"count": 3}, "counter/with/slash": {"count": 1}}

    second = make_runtime(namespace="restored")
    await Counting.register(second, "counter", Counting)
    await start(second)
    await second.load_state(json.loads(json.dumps(saved)))
    assert await second.send_message(Ask(), agent("counter")) == 4
    assert await second.send_message(Ask(), agent("counter", "with/slash")) == 2


async def test_what_is_loaded_is_what_is_saved_again(runtime: Any, start: Any) -> None:
    await counted(runtime, start, 0)
    snapshot = {"counter/a": {"count": 2}, "counter/b": {"count": 5}}
    await runtime.load_state(snapshot)
    assert await runtime.save_state() == snapshot


async def test_an_agent_without_saved_state_begins_anew(runtime: Any, start: Any) -> None:
    await counted(runtime, start, 0)
    await runtime.load_state({})
    assert await runtime.send_message(Ask(), agent("counter")) == 1
    assert await runtime.agent_save_state(agent("counter", "never met")) == {"count": 0}


async def test_an_agent_that_keeps_no_state_is_not_asked_for_it(runtime: Any, start: Any) -> None:
    await host(runtime, "echo", echo)
    await start(runtime)
    await runtime.send_message(Ask(), agent("echo"))
    assert await runtime.agent_save_state(agent("echo")) == {}
    await runtime.load_state(await runtime.save_state())


async def test_agents_of_unknown_types_are_left_out_when_a_state_is_loaded(runtime: Any, start: Any) -> None:
    await counted(runtime, start, 1)
    await runtime.load_state({"gone/x": {"count": 9}, "counter/default": {"count": 5}})
    assert await runtime.send_message(Ask(), agent("counter")) == 6


@pytest.mark.parametrize(
    "snapshot",
    [
        {"counter/default": 3},
        {"counter/default": None},
        {"counter/default": [1]},
        {"no key": {"count": 1}},
        {"bad type!/x": {"count": 1}},
        {7: {"count": 1}},
        ["counter/default"],
        "counter/default",
        None,
    ],
    ids=repr,
)
async def test_a_malformed_snapshot_is_refused_and_changes_nothing(runtime: Any, start: Any, snapshot: Any) -> None:
    await counted(runtime, start)
    if isinstance(snapshot, dict):
        snapshot = {"counter/default": {"count": 99}, "counter/x": {"count": 1}, **snapshot}
    with pytest.raises(MalformedState):
        await runtime.load_state(snapshot)
    assert await runtime.agent_save_state(agent("counter")) == {"count": 3}


@pytest.mark.parametrize("state", [None, 3, "count", [1]], ids=repr)
async def test_a_malformed_state_of_one_agent_is_refused(runtime: Any, start: Any, state: Any) -> None:
    await counted(runtime, start)
    with pytest.raises(MalformedState):
        await runtime.agent_load_state(agent("counter"), state)
    assert await runtime.agent_save_state(agent("counter")) == {"count": 3}


async def test_state_comes_from_and_goes_to_autogens_runtime(runtime: Any, start: Any) -> None:
    theirs = SingleThreadedAgentRuntime()
    await Counting.register(theirs, "counter", Counting)
    theirs.start()
    await theirs.send_message(Ask(), agent("counter"))
    await theirs.stop_when_idle()

    await Counting.register(runtime, "counter", Counting)
    await start(runtime)
    await runtime.load_state(await theirs.save_state())
    assert await runtime.send_message(Ask(), agent("counter")) == 2

    back = SingleThreadedAgentRuntime()
    await Counting.register(back, "counter", Counting)
    await back.load_state(await runtime.save_state())
    assert await back.agent_save_state(agent("counter")) == {"count": 2}


async def test_state_moves_to_and_from_the_local_runtime(runtime: Any, start: Any) -> None:
    async with stagebell.LocalRuntime() as local:
        await Counting.register(local, "counter", Counting)
        await local.send_message(Ask(), agent("counter"))

        await Counting.register(runtime, "counter", Counting)
        await start(runtime)
        await runtime.load_state(await local.save_state())
        assert await runtime.send_message(Ask(), agent("counter")) == 2
        await local.load_state(await runtime.save_state())
        assert await local.send_message(Ask(), agent("counter")) == 3


async def test_state_survives_a_stop(runtime: Any, start: Any) -> None:
    await counted(runtime, start)
    await runtime.stop_when_idle()
    await start(runtime)
    assert await runtime.send_message(Ask(), agent("counter")) == 4


async def test_the_metadata_of_an_agent(runtime: Any, start: Any) -> None:
    await Counting.register(runtime, "counter", Counting)
    await start(runtime)
    metadata = await runtime.agent_metadata(agent("counter", "k"))
    assert dict(metadata) == {"type": "counter", "key": "k", "description": "counts"}


async def test_the_instance_behind_an_agent_can_be_looked_at(runtime: Any, start: Any) -> None:
    await counted(runtime, start)
    instance = await runtime.try_get_underlying_agent_instance(agent("counter"), Counting)
    assert instance.count == 3
    assert instance.id == agent("counter")
    with pytest.raises(TypeError, match="OnlyCalls"):
        await runtime.try_get_underlying_agent_instance(agent("counter"), OnlyCalls)


async def test_an_agent_is_made_when_it_is_first_needed_or_asked_for(runtime: Any, start: Any) -> None:
    made: list[AgentId] = []

    def make() -> Doing:
        made.append(AgentInstantiationContext.current_agent_id())
        return Doing(echo)

    await Doing.register(runtime, "lazy", make)
    await start(runtime)
    assert await runtime.get("lazy", "a") == agent("lazy", "a")
    assert made == []
    await runtime.get(agent("lazy", "b"), lazy=False)
    assert made == [agent("lazy", "b")]
    await runtime.send_message(Ask(), agent("lazy", "a"))
    await runtime.send_message(Ask(), agent("lazy", "a"))
    assert made == [agent("lazy", "b"), agent("lazy", "a")]


async def test_an_agent_type_is_registered_once(runtime: Any, start: Any) -> None:
    await host(runtime, "echo", echo)
    with pytest.raises(AlreadyRegistered, match="echo"):
        await host(runtime, "echo", echo)
    with pytest.raises(ValueError, match="already exists"):
        await Interleaved.register(runtime, "echo", Interleaved)
    await start(runtime)
    assert await runtime.send_message(Ask(text="first"), agent("echo")) == "first"


async def test_an_instance_can_be_registered_as_an_agent(runtime: Any, start: Any) -> None:
    async def who(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        return str(agent.id)

    first, second = Doing(who), Doing(who)
    await first.register_instance(runtime, agent("one", "first"))
    await second.register_instance(runtime, agent("one", "second"))
    await start(runtime)
    assert await runtime.send_message(Ask(), agent("one", "first")) == "one/first"
    assert await runtime.send_message(Ask(), agent("one", "second")) == "one/second"
    assert await runtime.try_get_underlying_agent_instance(agent("one", "second"), Doing) is second
    with pytest.raises(ValueError, match="already exists"):
        await Doing(who).register_instance(runtime, agent("one", "first"))
