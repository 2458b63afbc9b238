"""A published message whose handler raised is handled again: only its agent waits, and it takes effect once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription

from stagebell import Publisher, Retry, agent_options
from tests.runtime.redis.retrying import STEADY, Bench, Tried, failing
from tests.support.agents import Ask, Doing, Note
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_a_message_is_handled_again_and_takes_effect_once(bench: Bench) -> None:
    await bench.host(failing(2))
    await bench.publish(1)
    assert [await bench.next_attempt(), await bench.next_attempt()] == [10, 20]
    await bench.at_rest()
    assert bench.attempts == [("a", 1)] * 3
    assert bench.heard() == [1]
    assert bench.letters == []


async def test_after_its_last_attempt_it_is_a_dead_letter_that_says_why(bench: Bench) -> None:
    await bench.host(failing(3))
    await bench.publish(1, 2)
    await bench.next_attempt()
    await bench.next_attempt()
    await bench.at_rest()
    assert bench.attempts == [("a", 1)] * 3 + [("a", 2)]
    assert bench.heard() == [2]
    (letter,) = bench.letters
    assert (letter["attempts"], letter["reason"]) == ("3", "ValueError: no luck")
    assert letter["traceback"].splitlines()[0].startswith("Traceback")
    assert letter["traceback"].splitlines()[-1] == "ValueError: no luck"


async def test_only_its_own_agent_waits_and_its_order_is_kept(bench: Bench) -> None:
    async def fail_once(agent: Doing, message: Note, ctx: MessageContext) -> None:
        if message.number == 1 and agent.id.key == "a" and bench.attempts.count(("a", 1)) == 1:
            raise ValueError("no luck")

    await bench.host(fail_once)
    await bench.publish(1, 2, 3)
    await eventually(lambda: bench.clock.due_in, 5)
    await bench.publish(4)
    for number in range(50):
        await bench.publish(number, key=f"n{number % 10}")
    call = asyncio.create_task(bench.runtime.send_message(Ask(), AgentId("one", "a")))
    await eventually(lambda: len(bench.attempts) == 51, 5)  # nobody but its agent waits
    assert [number for key, number in bench.attempts if key == "a"] == [1]
    assert not call.done()
    await bench.next_attempt()
    assert await asyncio.wait_for(call, 5) == "nothing"
    assert [number for key, number in bench.attempts if key == "a"] == [1, 1, 2, 3, 4]
    await bench.at_rest()


async def test_many_messages_behind_it_are_in_nobodys_way(bench: Bench) -> None:
    async def fail_once(agent: Doing, message: Note, ctx: MessageContext) -> None:
        if agent.id.key == "a" and bench.attempts.count(("a", 0)) == 1 and message.number == 0:
            raise ValueError("no luck")

    bench.runtime = bench.new_runtime(read_credit=8)
    await bench.host(fail_once)
    await bench.publish(*range(20))
    await eventually(lambda: bench.clock.due_in, 5)
    await bench.publish(*range(20, 40))
    await bench.publish(*range(40), key="b")
    await eventually(lambda: len(bench.attempts) == 41, 5)
    await bench.next_attempt()
    await bench.at_rest()
    assert [number for key, number in bench.attempts if key == "a"] == [0, *range(40)]
    assert [number for key, number in bench.attempts if key == "b"] == list(range(40))


@pytest.mark.parametrize("retry", [None, Retry(final=(LookupError,))], ids=["no retry", "a final error"])
async def test_without_another_attempt_it_is_a_dead_letter_at_once(bench: Bench, retry: Retry | None) -> None:
    @agent_options(retry=retry)
    class Once(Tried): ...

    await bench.host(failing(9, lambda: KeyError("gone")), cls=Once)
    await bench.publish(1)
    await bench.at_rest()
    (letter,) = bench.letters
    assert (letter["attempts"], letter["reason"]) == ("1", "KeyError: 'gone'")


async def test_a_call_has_one_attempt(bench: Bench) -> None:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        bench.attempts.append(("ask", 0))
        raise ValueError("no luck")

    await bench.host(failing(0), ask)
    with pytest.raises(ValueError, match="no luck"):
        await bench.runtime.send_message(Ask(), AgentId("one", "a"))
    assert bench.attempts == [("ask", 0)]
    assert bench.letters == []


async def test_a_message_to_one_agent_that_nobody_waits_for_is_tried_again(bench: Bench) -> None:
    left = [1]

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        bench.attempts.append(("ask", message.number))
        if left.pop():
            left.append(0)
            raise ValueError("no luck")

    await bench.host(failing(0), ask)
    async with Publisher(bench.url, namespace=bench.namespace) as publisher:
        await publisher.send(Ask(number=7), AgentId("one", "a"))
    await bench.next_attempt()
    await bench.at_rest()
    assert bench.attempts == [("ask", 7)] * 2


async def test_a_reply_stays_and_a_failed_call_is_made_again(bench: Bench) -> None:
    calls: list[str] = []

    async def help(agent: Doing, message: Ask, ctx: MessageContext) -> int:
        calls.append(message.text)
        if message.text == "shaky" and calls.count("shaky") == 1:
            raise ValueError("no luck")
        return len(calls)

    async def ask_both(agent: Doing, message: Note, ctx: MessageContext) -> None:
        bench.attempts.append(("steady", await agent.call("helper", "steady")))
        bench.attempts.append(("shaky", await agent.call("helper", "shaky")))

    await Doing.register(bench.runtime, "helper", lambda: Doing(help))
    await bench.host(ask_both)
    await bench.publish(1)
    await bench.next_attempt()
    await bench.at_rest()
    assert calls == ["steady", "shaky", "shaky"]
    assert [(who, answer) for who, answer in bench.attempts if who != "a"] == [
        ("steady", 1),
        ("steady", 1),
        ("shaky", 3),
    ]


async def test_what_nested_turns_did_during_a_failed_call_is_kept(bench: Bench) -> None:
    failures = [ValueError("no luck")]

    async def call_back(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await agent.call(AgentId("one", "a"))
        if failures:
            raise failures.pop()

    async def count(agent: Any, message: Ask, ctx: MessageContext) -> str:
        agent.heard.append(0)
        return "counted"

    async def ask(agent: Any, message: Note, ctx: MessageContext) -> None:
        await agent.call("back")
        agent.heard.append(9)

    await Doing.register(bench.runtime, "back", lambda: Doing(call_back))
    await bench.host(ask, count)
    await bench.publish(1)
    await bench.next_attempt()
    await bench.at_rest()
    assert bench.heard() == [1, 0, 0, 9]


@pytest.mark.parametrize("shaky_first", [True, False])
async def test_what_nested_turns_did_is_kept_by_every_later_attempt(bench: Bench, shaky_first: bool) -> None:
    """In two attempts a call fails, and then all; each attempt makes that call again, and is called back."""

    async def help(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "shaky" and bench.attempts.count(("a", 1)) < 3:
            raise ValueError("no luck")
        return await agent.call(AgentId("one", "a"))

    async def count(agent: Any, message: Ask, ctx: MessageContext) -> str:
        bench.attempts.append(("nested", 0))
        agent.heard.append(0)
        return "counted"

    async def ask(agent: Any, message: Note, ctx: MessageContext) -> None:
        names = ["shaky", "steady"] if shaky_first else ["steady", "shaky", "steady"]
        for number, name in enumerate(names):
            with suppress(ValueError):
                await agent.call("helper", name)
                agent.heard.append(number + 10)
        if bench.attempts.count(("a", 1)) < 3:
            raise ValueError("no luck")

    await Doing.register(bench.runtime, "helper", lambda: Doing(help))
    await bench.host(ask, count)
    await bench.publish(1)
    await bench.next_attempt()
    await bench.next_attempt()
    await bench.at_rest()
    assert bench.heard().count(0) == bench.attempts.count(("nested", 0)) == 2 + (not shaky_first)


async def test_the_next_owner_goes_on_with_the_count_and_tries_at_once(bench: Bench) -> None:
    await bench.host(failing(2))
    await bench.publish(1)
    await eventually(lambda: bench.clock.due_in, 5)
    await bench.runtime.stop()
    assert bench.clock.due_in == []
    second = bench.new_runtime()
    await bench.host(failing(9), runtime=second)
    async with second:
        await eventually(lambda: len(bench.attempts) == 2, 5)
        await bench.next_attempt()
        await bench.at_rest()
    (letter,) = bench.letters
    assert letter["attempts"] == "3"
    assert len(bench.attempts) == 3


async def test_one_that_is_read_again_while_it_waits_is_tried_at_once(bench: Bench) -> None:
    await bench.host(failing(1))
    await bench.publish(1, 2)
    await eventually(lambda: bench.clock.due_in, 5)
    node = bench.runtime._node
    assert node is not None
    partition: Any = node.services.partitions[bench.keys.tag]
    partition.start_over()
    await bench.at_rest()
    assert bench.attempts == [("a", 1), ("a", 1), ("a", 2)]
    assert bench.clock.due_in == []


async def test_stop_when_idle_waits_for_the_last_attempt(bench: Bench) -> None:
    await bench.host(failing(1))
    await bench.publish(1)
    await eventually(lambda: bench.clock.due_in, 5)
    stopping = asyncio.create_task(bench.runtime.stop_when_idle(timeout=10))
    await bench.next_attempt()
    await stopping
    assert bench.attempts == [("a", 1)] * 2
    assert bench.heard() == [1]


async def test_the_next_attempt_gets_the_message_as_it_was_sent(bench: Bench) -> None:
    texts: list[str] = []

    async def spoil(agent: Doing, message: Note, ctx: MessageContext) -> None:
        texts.append(message.text)
        message.text += "spoilt"
        if len(texts) == 1:
            raise ValueError("no luck")

    await bench.host(spoil)
    await bench.publish(1)
    await bench.next_attempt()
    await bench.at_rest()
    assert texts == ["", ""]


async def test_an_agent_that_cannot_be_made_is_tried_again(bench: Bench) -> None:
    made = 0

    def make() -> Tried:
        nonlocal made
        made += 1
        if made == 1:
            raise ValueError("not yet")
        return Tried(*[failing(0)] * 2)

    await Tried.register(bench.runtime, "one", make)
    await bench.runtime.add_subscription(TypeSubscription("t", "one"))
    await bench.runtime.start()
    await bench.publish(1)
    await bench.next_attempt()
    await bench.at_rest()
    assert (made, bench.letters) == (2, [])


async def test_agents_bound_to_a_process_are_not_tried_again(bench: Bench) -> None:
    @agent_options(process_bound=True, retry=STEADY)
    class Bound(Doing): ...

    left = failing(1)
    await bench.host(left, cls=Bound)
    async with Publisher(bench.url, namespace=bench.namespace) as publisher:
        await publisher.publish(Note(number=1), TopicId("t", "a"))
    await eventually(lambda: bench.attempts == [("a", 1)], 5)
    dead = f"sb:{{{bench.namespace}:w:*}}:dlq"
    (letters,) = await eventually(lambda: list(bench.client.scan_iter(dead, count=1000)), 5)
    assert bench.client.xlen(letters) == 1
    assert bench.clock.due_in == []


async def test_turns_that_overlap_do_not_wait_for_each_other(bench: Bench) -> None:
    @agent_options(concurrency="interleaved", retry=STEADY)
    class Overlapping(Doing): ...

    async def fail_once(agent: Doing, message: Note, ctx: MessageContext) -> None:
        if bench.attempts.count(("a", 1)) == 1 and message.number == 1:
            raise ValueError("no luck")

    await bench.host(fail_once, cls=Overlapping)
    await bench.publish(1)
    await eventually(lambda: bench.clock.due_in, 5)
    await bench.publish(2, 3)
    await eventually(lambda: len(bench.attempts) == 3, 5)
    await bench.next_attempt()
    await bench.at_rest()
    assert bench.attempts == [("a", 1), ("a", 2), ("a", 3), ("a", 1)]
