"""Messages that come later: once, at a time, or again and again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from autogen_core import (
    AgentId,
    DefaultInterventionHandler,
    DropMessage,
    MessageContext,
    RoutedAgent,
    TopicId,
    TypeSubscription,
    message_handler,
)
from autogen_core.exceptions import MessageDroppedException
from google.protobuf.wrappers_pb2 import StringValue

from stagebell import Timer, deadline
from stagebell.errors import MessageTooLarge, RuntimeNotRunning, UnregisteredType
from tests.support.agents import Ask, Doing, Note, Unknown, agent, collect, echo, host
from tests.support.waiting import eventually, turns_of_the_loop

SOON = 0.05
NEVER = 3600.0
NEWS = TopicId("news", "default")


@dataclass
class Plain:
    """A dataclass."""

    text: str


class Everything(RoutedAgent):
    """Collects messages of each kind, with what came with them."""

    seen: list[tuple[Any, AgentId | None, TopicId | None, bool]]

    def __init__(self, seen: list[Any]) -> None:
        super().__init__("collects")
        self.seen = seen

    @message_handler
    async def on_any(self, message: Note | Plain | StringValue, ctx: MessageContext) -> None:
        self.seen.append((message, ctx.sender, ctx.topic_id, ctx.is_rpc))


@pytest.fixture
async def seen(runtime: Any, start: Any) -> list[Any]:
    """What comes to the agent `all`, which subscribes to the news."""
    seen: list[Any] = []
    await Everything.register(runtime, "all", lambda: Everything(seen))
    await runtime.add_subscription(TypeSubscription("news", "all"))
    await start(runtime)
    return seen


async def test_a_message_comes_to_an_agent_after_the_delay(runtime: Any, seen: list[Any]) -> None:
    started = time.monotonic()
    timer = await runtime.schedule(Note(text="later"), agent("all", "a/b c"), delay=SOON)
    assert isinstance(timer, Timer)
    assert abs(timer.due - datetime.now(UTC)) < timedelta(seconds=5)
    await turns_of_the_loop()
    assert not seen
    await eventually(lambda: seen, 5)
    assert time.monotonic() - started >= SOON - 0.005
    assert seen == [(Note(text="later"), None, None, True)]
    assert await timer.cancel() is False


@pytest.mark.parametrize(
    "message", [Note(text="n"), Plain("p"), StringValue(value="v")], ids=lambda m: type(m).__name__
)
async def test_a_message_of_any_kind_comes_to_a_topic(runtime: Any, seen: list[Any], message: Any) -> None:
    await runtime.schedule(message, NEWS, delay=0.0)
    await eventually(lambda: seen, 5)
    assert seen == [(message, None, NEWS, False)]


async def test_a_topic_reaches_those_who_subscribe_by_then(runtime: Any, seen: list[Any]) -> None:
    texts: list[str] = []
    await runtime.schedule(Note(text="first"), NEWS, delay=0.3)
    await host(runtime, "other", echo, collect(texts), topics=("news",))
    await eventually(lambda: seen and texts, 5)
    assert (len(seen), texts) == (1, ["first"])


async def test_a_reminder_comes_until_it_is_cancelled(runtime: Any, seen: list[Any]) -> None:
    timer = await runtime.schedule(Note(), agent("all"), every=SOON)
    await eventually(lambda: len(seen) >= 3, 5)
    assert await timer.cancel() is True
    assert await timer.cancel() is False
    count = len(seen)
    await asyncio.sleep(3 * SOON)
    assert len(seen) <= count + 1  # one was under way


async def test_a_reminder_may_begin_at_another_time(runtime: Any, seen: list[Any]) -> None:
    await runtime.schedule(Note(), agent("all"), delay=0.0, every=NEVER)
    await runtime.schedule(Note(), NEWS, at=datetime.now(UTC) + timedelta(seconds=SOON), every=NEVER)
    await eventually(lambda: len(seen) == 2, 5)


async def test_what_is_over_comes_at_once(runtime: Any, seen: list[Any]) -> None:
    await runtime.schedule(Note(), agent("all"), at=datetime(2001, 1, 1, tzinfo=UTC))
    await eventually(lambda: seen, 5)


async def test_the_same_name_replaces(runtime: Any, seen: list[Any]) -> None:
    first = await runtime.schedule(Note(text="old"), agent("all"), delay=0.2, name="the one")
    other = await runtime.schedule(Note(text="of another"), agent("all", "b"), delay=0.2, name="the one")
    second = await runtime.schedule(Note(text="new"), agent("all"), delay=0.2, name="the one")
    assert first.id == second.id != other.id
    await eventually(lambda: len(seen) == 2, 5)
    await turns_of_the_loop()
    assert {note.text for note, *_ in seen} == {"new", "of another"}


async def test_a_timer_is_cancelled_by_its_id(runtime: Any, seen: list[Any]) -> None:
    for to in (agent("all"), NEWS):
        timer = await runtime.schedule(Note(), to, delay=NEVER)
        assert await runtime.cancel_timer(timer.id) is True
        assert await runtime.cancel_timer(timer.id) is False
    with pytest.raises(ValueError, match="no id of a timer"):
        await runtime.cancel_timer("something")


HOUR = datetime.now(UTC) + timedelta(hours=1)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({}, "give delay, every or at"),
    "two times": ({"delay": 1.0, "at": HOUR}, "not both"),
    "no zone": ({"at": datetime(2030, 1, 1)}, "time zone"),
    "negative": ({"delay": -1.0}, "delay must be"),
    "no number": ({"delay": float("nan")}, "delay must be"),
    "for ever": ({"delay": float("inf")}, "delay must be"),
    "no period": ({"every": 0.0}, "every must be"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_times_that_are_none_are_refused(runtime: Any, seen: list[Any], case: str) -> None:
    when, text = WRONG[case]
    with pytest.raises(ValueError, match=text):
        await runtime.schedule(Note(), agent("all"), **when)


async def test_a_timer_keeps_nobody_busy(runtime: Any, seen: list[Any]) -> None:
    await runtime.schedule(Note(), agent("all"), delay=NEVER)
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
    with pytest.raises(RuntimeNotRunning):
        await runtime.schedule(Note(), agent("all"), delay=NEVER)


async def test_what_was_due_while_the_runtime_stood_still_comes_with_the_next_start(
    runtime: Any, start: Any, seen: list[Any]
) -> None:
    await runtime.schedule(Note(text="once"), agent("all"), delay=SOON)
    await runtime.schedule(Note(text="again"), agent("all", "b"), every=SOON)
    await runtime.stop()
    seen.clear()
    await asyncio.sleep(4 * SOON)
    assert not seen
    await start(runtime)
    await eventually(lambda: {"once", "again"} <= {note.text for note, *_ in seen}, 5)
    assert [note.text for note, *_ in seen].count("once") == 1


async def test_a_deadline_does_not_hold_for_what_comes_later(runtime: Any, seen: list[Any]) -> None:
    with deadline(0.02):
        await runtime.schedule(Note(), agent("all"), delay=2 * SOON)
        await runtime.schedule(Note(), NEWS, delay=2 * SOON)
    await eventually(lambda: len(seen) == 2, 5)


async def test_a_turn_sets_a_timer_in_its_agents_name(runtime: Any, start: Any) -> None:
    senders: list[AgentId | None] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        timer = await agent.runtime.schedule(Note(), NEWS, delay=SOON)
        return str(timer.id)

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        senders.append((agent.id, ctx.sender))

    await host(runtime, "doing", ask, note, topics=("news",))
    await host(runtime, "other", echo, note, topics=("news",))
    await start(runtime)
    await runtime.send_message(Ask(), agent("doing"))
    await eventually(lambda: senders, 5)
    await turns_of_the_loop()
    assert senders == [(agent("other"), agent("doing"))]  # a publisher does not get its own


async def test_a_turn_sets_and_cancels(runtime: Any, start: Any) -> None:
    heard: list[str] = []
    answers: list[bool] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        runtime: Any = agent.runtime
        if message.text:
            answers.append(await runtime.cancel_timer(message.text))
        first = await runtime.schedule(Note(text="first"), agent.id, delay=SOON)
        second = await runtime.schedule(Note(text="second"), agent.id, delay=2 * SOON)
        answers.append(await first.cancel())
        third = await runtime.schedule(Note(text="third"), agent.id, delay=NEVER)
        return f"{second.id}\n{third.id}"

    await host(runtime, "doing", ask, collect(heard))
    await start(runtime)
    third = str(await runtime.send_message(Ask(), agent("doing"))).split("\n")[1]
    await runtime.send_message(Ask(text=third), agent("doing"))
    await eventually(lambda: len(heard) == 2, 5)
    assert heard == ["second", "second"]
    assert answers == [True, True, True]
    assert await runtime.cancel_timer(third) is False


@pytest.mark.needs(publishes_at_once=False)
async def test_a_turn_that_fails_has_set_no_timer_and_cancelled_none(runtime: Any, seen: list[Any]) -> None:
    kept = await runtime.schedule(Note(), agent("all"), delay=NEVER)

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> str:
        runtime: Any = agent.runtime
        await runtime.schedule(Note(), AgentId("all", "default"), delay=0.0)
        await kept.cancel()
        raise ValueError("after all")

    await host(runtime, "doing", ask)
    with pytest.raises(ValueError, match="after all"):
        await runtime.send_message(Ask(), agent("doing"))
    await runtime.schedule(Note(text="marker"), agent("all"), delay=SOON)
    await eventually(lambda: seen, 5)
    assert [note.text for note, *_ in seen] == ["marker"]
    assert await kept.cancel() is True


@pytest.mark.needs(any_object=False)
async def test_a_message_that_cannot_travel_is_refused_at_once(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime(server_max_message_bytes=1000)
    await host(runtime, "doing", echo)
    await start(runtime)
    with pytest.raises(MessageTooLarge):
        await runtime.schedule(Note(text="x" * 2000), agent("doing"), delay=NEVER)
    with pytest.raises(UnregisteredType):
        await runtime.schedule(Unknown(), agent("doing"), delay=NEVER)


class Changes(DefaultInterventionHandler):
    async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
        return self._changed(message)

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        return self._changed(message)

    def _changed(self, message: Any) -> Any:
        return DropMessage if message.text == "drop" else Note(text=f"{message.text}, changed")


async def test_interventions_see_it_when_it_is_scheduled(make_runtime: Any, start: Any) -> None:
    runtime, heard = make_runtime(intervention_handlers=[Changes()]), []
    await host(runtime, "doing", echo, collect(heard), topics=("news",))
    await start(runtime)
    for to in (agent("doing"), NEWS):
        with pytest.raises(MessageDroppedException):
            await runtime.schedule(Note(text="drop"), to, delay=0.0)
        await runtime.schedule(Note(text="keep"), to, delay=0.0)
    await eventually(lambda: len(heard) == 2, 5)
    assert heard == ["keep, changed"] * 2
