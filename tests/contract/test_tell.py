"""A message to one agent that nobody waits for: `schedule` with `delay=0` and nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, TopicId

import stagebell
from stagebell.errors import Undeliverable
from tests.support.agents import Ask, Bound, Doing, Note, OnlyEvents, agent, host
from tests.support.waiting import eventually, turns_of_the_loop

Seen = list[Any]


async def tell(doing: Doing, text: str, to: AgentId) -> Any:
    runtime: Any = doing.runtime
    return await runtime.schedule(Note(text=text), to, delay=0)


def hear(seen: Seen) -> Any:
    async def note(doing: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append((message.text, str(ctx.sender), ctx.is_rpc, ctx.topic_id, stagebell.remaining()))

    return note


@pytest.mark.parametrize("cls", [Doing, Bound])
async def test_a_turn_tells_another_agent(runtime: Any, start: Any, cls: Any) -> None:
    seen: Seen = []

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> bool:
        timer = await tell(doing, "told", agent("hears", "a/b"))
        return bool(await timer.cancel())

    await host(runtime, "tells", ask)
    await host(runtime, "hears", note=hear(seen), cls=cls)
    await start(runtime)
    with stagebell.deadline(30), stagebell.hop_limit(1):  # neither holds for what is told
        assert await runtime.send_message(Ask(), agent("tells")) is False
    await eventually(lambda: seen, 5)
    assert seen == [("told", "tells/default", True, None, None)]


async def test_what_is_told_may_lead_on(runtime: Any, start: Any) -> None:
    """An agent that tells itself to go on uses no hops up."""
    seen: Seen = []

    async def note(doing: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append(message.text)
        if len(seen) < 5:
            await tell(doing, str(len(seen)), doing.id)

    await host(runtime, "loops", note=note)
    await start(runtime)
    with stagebell.hop_limit(1):
        await runtime.schedule(Note(text="0"), agent("loops"), delay=0)
    await eventually(lambda: len(seen) == 5, 5)
    assert seen == ["0", "1", "2", "3", "4"]


async def test_a_timer_uses_no_hops_up(runtime: Any, start: Any) -> None:
    seen: Seen = []

    async def note(doing: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append(message.text)
        if len(seen) < 3:
            runtime: Any = doing.runtime
            await runtime.schedule(Note(text=str(len(seen))), doing.id, delay=0.01)

    await host(runtime, "loops", note=note)
    await start(runtime)
    with stagebell.hop_limit(1):
        await runtime.schedule(Note(text="0"), agent("loops"), delay=0.01)
    await eventually(lambda: len(seen) == 3, 5)


async def test_it_stays_in_line_with_what_the_turn_publishes(runtime: Any, start: Any) -> None:
    seen: Seen = []

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> None:
        for number in range(6):
            if number % 2:
                await tell(doing, str(number), agent("hears"))
            else:
                await doing.publish_message(Note(text=str(number)), TopicId("news", "default"))

    await host(runtime, "tells", ask)
    await host(runtime, "hears", note=hear(seen), topics=("news",))
    await start(runtime)
    await runtime.send_message(Ask(), agent("tells"))
    await eventually(lambda: len(seen) == 6, 5)
    assert [text for text, *_ in seen] == list("012345")


async def test_it_comes_after_the_turn_that_told_it(runtime: Any, start: Any) -> None:
    order: list[str] = []

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> None:
        await tell(doing, "self", doing.id)
        await turns_of_the_loop()
        order.append("turn ended")

    async def note(doing: Doing, message: Note, ctx: MessageContext) -> None:
        order.append(message.text)

    await host(runtime, "tells", ask, note)
    await start(runtime)
    await runtime.send_message(Ask(), agent("tells"))
    await eventually(lambda: len(order) == 2, 5)
    assert order == ["turn ended", "self"]


@pytest.mark.needs(publishes_at_once=False)
async def test_a_turn_that_fails_has_told_nothing(runtime: Any, start: Any) -> None:
    seen: Seen = []

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> None:
        await tell(doing, message.text, agent("hears"))
        if message.text == "never":
            raise ValueError("after all")

    await host(runtime, "tells", ask)
    await host(runtime, "hears", note=hear(seen))
    await start(runtime)
    with pytest.raises(ValueError, match="after all"):
        await runtime.send_message(Ask(text="never"), agent("tells"))
    await runtime.send_message(Ask(text="marker"), agent("tells"))
    await eventually(lambda: seen, 5)
    assert [text for text, *_ in seen] == ["marker"]


@pytest.mark.needs(publishes_at_once=False)
async def test_it_is_tried_again_when_its_handler_raises(runtime: Any, start: Any) -> None:
    seen: Seen = []

    async def note(doing: Doing, message: Note, ctx: MessageContext) -> None:
        seen.append(message.text)
        if len(seen) < 3:
            raise ValueError("once more")

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> None:
        await tell(doing, "told", agent("fails"))

    await host(runtime, "tells", ask)
    await host(runtime, "fails", note=note)
    await start(runtime)
    await runtime.send_message(Ask(), agent("tells"))
    await eventually(lambda: len(seen) == 3, 10)
    await turns_of_the_loop()
    assert seen == ["told"] * 3


async def test_an_agent_that_does_not_handle_it_is_reported_and_goes_on(
    runtime: Any, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await OnlyEvents.register(runtime, "events", OnlyEvents)
    seen: Seen = []
    await host(runtime, "hears", note=hear(seen))
    await start(runtime)
    with caplog.at_level(logging.ERROR, "stagebell"):
        await runtime.schedule(Ask(), agent("events"), delay=0)
        await eventually(lambda: "events/default" in caplog.text, 5)
    await runtime.schedule(Note(text="next"), agent("hears"), delay=0)
    await eventually(lambda: seen, 5)


async def test_nobody_hosts_the_agents_type(runtime: Any, start: Any) -> None:
    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> str:
        with pytest.raises(Undeliverable):
            await tell(doing, "told", agent("nobody"))
        return "refused"

    await host(runtime, "tells", ask)
    await start(runtime)
    assert await runtime.send_message(Ask(), agent("tells")) == "refused"
    with pytest.raises(Undeliverable):
        await runtime.schedule(Note(), agent("nobody"), delay=0)


@pytest.mark.parametrize("cls", [Doing, Bound])
async def test_from_outside_it_is_there_at_once(runtime: Any, start: Any, cls: Any) -> None:
    seen: Seen = []
    await host(runtime, "hears", note=hear(seen), cls=cls)
    await start(runtime)
    with stagebell.deadline(30):
        timer = await runtime.schedule(Note(text="told"), agent("hears"), delay=0)
    assert await timer.cancel() is False
    await asyncio.wait_for(runtime.stop_when_idle(), 10)
    assert seen == [("told", "None", True, None, None)]


@pytest.mark.needs(any_object=False)
async def test_an_agent_that_is_bound_to_another_process_is_told_too(make_runtime: Any, start: Any) -> None:
    seen: Seen = []
    holds, tells = make_runtime(), make_runtime()
    await host(holds, "bound", note=hear(seen), cls=Bound)
    await start(holds)

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> None:
        await tell(doing, "from a turn", agent("bound", "b"))

    await host(tells, "tells", ask)
    await start(tells)
    await tells.send_message(Ask(), agent("tells"))
    await tells.schedule(Note(text="from outside"), agent("bound", "b"), delay=0)
    await eventually(lambda: len(seen) == 2, 5)
    assert [(text, sender) for text, sender, *_ in seen] == [("from a turn", "tells/default"), ("from outside", "None")]
