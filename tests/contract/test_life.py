"""A runtime's life: started, idle, stopped, started again, closed."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId, TypePrefixSubscription, TypeSubscription

from stagebell.errors import RuntimeNotRunning, SubscriptionError
from tests.support.agents import Ask, Doing, Note, agent, collect, echo, host
from tests.support.waiting import eventually, turns_of_the_loop


async def test_async_with_starts_and_closes(runtime: Any) -> None:
    made: list[Doing] = []

    def make() -> Doing:
        made.append(Doing(echo))
        return made[-1]

    await Doing.register(runtime, "echo", make)
    async with runtime as entered:
        assert entered is runtime
        assert await runtime.send_message(Ask(text="hello"), agent("echo")) == "hello"
    assert [one.closed for one in made] == [1]
    with pytest.raises(RuntimeNotRunning):
        await runtime.send_message(Ask(), agent("echo"))


async def test_an_agent_is_closed_once_however_often_the_runtime_is(runtime: Any, start: Any) -> None:
    made: list[Doing] = []

    def make() -> Doing:
        made.append(Doing(echo))
        return made[-1]

    await Doing.register(runtime, "made", make)
    given = Doing(echo)
    await given.register_instance(runtime, agent("given"))
    await start(runtime)
    await runtime.send_message(Ask(), agent("made"))
    await runtime.close()
    await runtime.close()
    assert [one.closed for one in made] == [1]
    assert given.closed == 1


async def test_stop_keeps_the_agents_and_start_goes_on(runtime: Any, start: Any) -> None:
    async def count(agent: Doing, message: Ask, ctx: MessageContext) -> int:
        agent.count = getattr(agent, "count", 0) + 1
        return int(agent.count)

    await host(runtime, "counter", count)
    await start(runtime)
    assert await runtime.send_message(Ask(), agent("counter")) == 1
    await runtime.stop()
    await start(runtime)
    assert await runtime.send_message(Ask(), agent("counter")) == 2
    await runtime.stop_when_idle()
    await start(runtime)
    assert await runtime.send_message(Ask(), agent("counter")) == 3
    assert (await runtime.try_get_underlying_agent_instance(agent("counter"), Doing)).closed == 0


async def test_it_is_started_once_and_stopped_once(runtime: Any, start: Any) -> None:
    await start(runtime)
    with pytest.raises(RuntimeError, match="already started"):
        await start(runtime)
    await runtime.stop()
    with pytest.raises(RuntimeError, match=r"not started|is stopped"):
        await runtime.stop()
    with pytest.raises(RuntimeError, match=r"not started|is stopped"):
        await runtime.stop_when_idle()


async def test_before_the_first_start_messages_wait_or_are_refused(runtime: Any, start: Any, capabilities: Any) -> None:
    seen: list[str] = []
    await host(runtime, "reader", echo, collect(seen), topics=("news",))
    if not capabilities.handles_before_start:
        with pytest.raises(RuntimeNotRunning):
            await runtime.publish_message(Note(), TopicId("news", "d"))
        return
    await runtime.publish_message(Note(text="waited"), TopicId("news", "d"))
    call = asyncio.create_task(runtime.send_message(Ask(text="too"), agent("reader")))
    await turns_of_the_loop()
    assert not seen
    await start(runtime)
    assert await call == "too"
    await runtime.stop_when_idle()
    assert seen == ["waited"]


async def test_stop_when_idle_waits_for_handlers_that_wait(runtime: Any, start: Any) -> None:
    gate = asyncio.Event()
    seen: list[str] = []

    async def slow(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await gate.wait()
        seen.append(message.text)

    await host(runtime, "slow", note=slow, topics=("news",))
    await start(runtime)
    await runtime.publish_message(Note(text="done"), TopicId("news", "d"))
    stopping = asyncio.create_task(runtime.stop_when_idle())
    await turns_of_the_loop()
    assert not stopping.done()
    gate.set()
    await asyncio.wait_for(stopping, 5)
    assert seen == ["done"]


async def test_stop_when_idle_waits_for_chains_across_calls_and_publishes(runtime: Any, start: Any) -> None:
    seen: list[int] = []

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await agent.call("worker", number=message.number)

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        seen.append(message.number)
        await asyncio.sleep(0)
        if message.number:
            await agent.publish_message(Note(number=message.number - 1), TopicId("steps", "d"))

    await host(runtime, "step", note=note, topics=("steps",))
    await host(runtime, "worker", ask)
    await start(runtime)
    await runtime.publish_message(Note(number=20), TopicId("steps", "d"))
    await runtime.stop_when_idle()
    assert seen == list(range(20, -1, -1))


async def test_stop_when_idle_on_an_idle_runtime_ends(runtime: Any, start: Any) -> None:
    await start(runtime)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)


@pytest.mark.parametrize("agent_is", ["new", "in memory"])
async def test_stop_lets_open_turns_end(runtime: Any, start: Any, agent_is: str) -> None:
    """A turn that is open when the runtime stops may end and answer its caller; stop waits for it."""
    gate, entered = asyncio.Event(), asyncio.Event()
    cancelled: list[bool] = []

    async def slow(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        entered.set()
        await gate.wait()
        cancelled.append(ctx.cancellation_token.is_cancelled())
        return "ended"

    await host(runtime, "slow", slow)
    await start(runtime)
    await runtime.get(agent("slow"), lazy=agent_is == "new")
    call = asyncio.create_task(runtime.send_message(Ask(), agent("slow")))
    await asyncio.wait_for(entered.wait(), 5)
    stopping = asyncio.create_task(runtime.stop())
    await turns_of_the_loop()
    assert not stopping.done()  # else the agent could be closed while its handler runs
    gate.set()
    assert await asyncio.wait_for(call, 5) == "ended"
    await asyncio.wait_for(stopping, 5)
    assert cancelled == [False]


async def test_a_handler_may_stop_the_runtime(runtime: Any, start: Any) -> None:
    async def stop(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await asyncio.sleep(0)
        await agent.runtime.stop()
        stopped.set()

    stopped = asyncio.Event()
    await host(runtime, "stopper", note=stop, topics=("end",))
    await start(runtime)
    await runtime.publish_message(Note(), TopicId("end", "d"))
    await asyncio.wait_for(stopped.wait(), 3)
    with pytest.raises(RuntimeNotRunning):
        await runtime.publish_message(Note(), TopicId("end", "d"))


@pytest.mark.needs(context_variables=True)
async def test_context_variables_of_the_caller_are_seen_by_the_handler(runtime: Any, start: Any) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    seen: list[str] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        value = variable.get()
        variable.set("changed by the handler")
        return value

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append(variable.get())

    await host(runtime, "reader", ask, note, topics=("news",))
    await start(runtime)
    variable.set("outer")
    assert await runtime.send_message(Ask(), agent("reader")) == "outer"
    assert variable.get() == "outer"
    await runtime.publish_message(Note(), TopicId("news", "default"))
    variable.set("later")
    await eventually(lambda: seen)
    assert seen == ["outer"]


async def test_close_waits_for_a_stop_that_is_under_way(runtime: Any, start: Any) -> None:
    gate, started = asyncio.Event(), asyncio.Event()
    closed_while_open: list[int] = []
    made: list[Doing] = []

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        started.set()
        await gate.wait()
        closed_while_open.append(agent.closed)

    def make() -> Doing:
        made.append(Doing(note=note))
        return made[-1]

    await Doing.register(runtime, "slow", make)
    await runtime.add_subscription(TypeSubscription("news", "slow"))
    await start(runtime)
    await runtime.publish_message(Note(), TopicId("news", "d"))
    await asyncio.wait_for(started.wait(), 3)
    stopping = asyncio.create_task(runtime.stop())
    await turns_of_the_loop()
    closing = asyncio.create_task(runtime.close())
    with pytest.raises(RuntimeError, match=r"not started|is stopped"):
        await runtime.stop()
    await turns_of_the_loop()
    assert not closing.done()
    gate.set()
    await asyncio.wait_for(asyncio.gather(stopping, closing), 5)
    assert closed_while_open == [0]
    assert [one.closed for one in made] == [1]


@pytest.mark.parametrize("cls", [TypeSubscription, TypePrefixSubscription])
async def test_a_subscription_of_an_impossible_agent_type_is_refused(runtime: Any, cls: Any) -> None:
    with pytest.raises(SubscriptionError, match="bad type!"):
        await runtime.add_subscription(cls("news", "bad type!"))
