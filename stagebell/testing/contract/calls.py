"""Calls: who answers, with what, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import AgentId, MessageContext, try_get_known_serializers_for_type

from stagebell.errors import CallCycleError, CantHandle, Undeliverable
from stagebell.testing.contract.agents import (
    Answer,
    Ask,
    Doing,
    Note,
    OnlyCalls,
    OnlyEvents,
    Unknown,
    agent,
    echo,
    host,
)
from stagebell.testing.contract.case import Room, case, raises, start
from stagebell.testing.contract.waiting import eventually, turns_of_the_loop


class Calls(Room):
    """Calls: who answers, with what, and in which order."""

    @case()
    async def test_a_call_is_answered(self, runtime: Any) -> None:
        await host(runtime, "echo", echo)
        await start(runtime)
        assert await runtime.send_message(Ask(text="hello"), agent("echo")) == "hello"

    @case(each=[None, "text", 7, 2.5, True, [1, "two", None], {"a": [1]}, Answer(text="yes", number=3)])
    async def test_a_reply_comes_back_as_it_went(self, runtime: Any, answer: Any) -> None:
        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            return answer

        await host(runtime, "giver", ask)
        await start(runtime)
        reply = await runtime.send_message(Ask(), agent("giver"))
        assert reply == answer
        assert type(reply) is type(answer)

    @case()
    async def test_each_key_is_an_agent_of_its_own(self, runtime: Any) -> None:
        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> list[str]:
            agent.words = [*agent.words, message.text]
            return list(agent.words)

        await host(runtime, "list", ask)
        await start(runtime)
        assert await runtime.send_message(Ask(text="a"), agent("list", "one")) == ["a"]
        assert await runtime.send_message(Ask(text="b"), agent("list", "two/with: odd ключ")) == ["b"]
        assert await runtime.send_message(Ask(text="c"), agent("list", "one")) == ["a", "c"]

    @case()
    async def test_the_handler_sees_who_calls_and_the_message_id(self, runtime: Any) -> None:
        seen: list[Any] = []

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            seen.append((ctx.sender, ctx.topic_id, ctx.is_rpc, ctx.message_id))

        async def pass_on(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            await agent.call("target")

        await host(runtime, "target", ask)
        await host(runtime, "caller", pass_on)
        await start(runtime)
        await runtime.send_message(Ask(), agent("target"), message_id="given")
        await runtime.send_message(Ask(), agent("caller", "k"))
        assert seen[0] == (None, None, True, "given")
        assert seen[1][:3] == (AgentId("caller", "k"), None, True)
        assert seen[1][3]

    @case()
    async def test_a_call_to_an_unknown_type_is_undeliverable(self, runtime: Any) -> None:
        await host(runtime, "somebody", echo)
        await start(runtime)
        with raises(Undeliverable, match="nobody") as caught:
            await runtime.send_message(Ask(), agent("nobody"))
        assert caught.value.recipient == "nobody/default"

    @case()
    async def test_a_call_that_no_handler_takes_ends_in_a_named_error(self, runtime: Any) -> None:
        await host(runtime, "other", echo)
        runtime.add_message_serializer(try_get_known_serializers_for_type(Unknown))
        await start(runtime)
        with raises(CantHandle, match="Unknown"):
            await runtime.send_message(Unknown(text="?"), agent("other"))

    @case()
    async def test_a_call_with_a_type_that_only_an_event_handler_takes_is_answered_with_none(
        self, runtime: Any
    ) -> None:
        """As in AutoGen: the class knows the type, and its handler does not run."""
        await OnlyEvents.register(runtime, "events", OnlyEvents)
        await start(runtime)
        assert await runtime.send_message(Note(text="?"), agent("events")) is None
        instance = await runtime.try_get_underlying_agent_instance(agent("events"), OnlyEvents)
        assert instance.seen == []

    @case()
    async def test_a_handler_for_calls_answers_them(self, runtime: Any) -> None:
        await OnlyCalls.register(runtime, "calls", OnlyCalls)
        await start(runtime)
        assert await runtime.send_message(Note(), agent("calls")) == "called"

    @case()
    async def test_calls_of_one_sender_are_handled_in_order(self, runtime: Any) -> None:
        seen: list[int] = []

        async def note_down(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            await asyncio.sleep(0)
            seen.append(message.number)

        async def many(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            await asyncio.gather(*(agent.call("log", number=n) for n in range(50)))

        await host(runtime, "log", note_down)
        await host(runtime, "sender", many)
        await start(runtime)
        await runtime.send_message(Ask(), agent("sender"))
        assert seen == list(range(50))

    @case()
    async def test_turns_of_one_agent_never_overlap(self, runtime: Any) -> None:
        """I6: one turn at a time."""
        open_turns, most = 0, 0

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            nonlocal open_turns, most
            open_turns += 1
            most = max(most, open_turns)
            await turns_of_the_loop(3)
            open_turns -= 1

        await host(runtime, "serial", ask)
        await start(runtime)
        await asyncio.gather(*(runtime.send_message(Ask(), agent("serial")) for _ in range(20)))
        assert most == 1

    @case()
    async def test_different_agents_work_at_the_same_time(self, runtime: Any) -> None:
        arrived: set[str] = set()
        both = asyncio.Event()

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            arrived.add(agent.id.key)
            if len(arrived) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 5)

        await host(runtime, "meet", ask)
        await start(runtime)
        await asyncio.gather(*(runtime.send_message(Ask(), agent("meet", key)) for key in ("one", "two")))
        assert arrived == {"one", "two"}

    @case()
    async def test_an_agent_may_be_called_back_while_it_waits(self, runtime: Any) -> None:
        async def a(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            if message.text == "back":
                return "from the nested turn"
            return f"A got {await agent.call('b')}"

        async def b(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            return f"B got {await agent.call('a', 'back')}"

        await host(runtime, "a", a)
        await host(runtime, "b", b)
        await start(runtime)
        assert await runtime.send_message(Ask(), agent("a")) == "A got B got from the nested turn"

    @case()
    async def test_an_agent_may_call_itself(self, runtime: Any) -> None:
        async def down(agent: Doing, message: Ask, ctx: MessageContext) -> int:
            if message.number == 0:
                return 0
            return 1 + int(await agent.call(agent.id, number=message.number - 1))

        await host(runtime, "self", down)
        await start(runtime)
        assert await runtime.send_message(Ask(number=12), agent("self")) == 12

    @case()
    async def test_several_calls_that_all_come_back_are_let_in_one_at_a_time(self, runtime: Any) -> None:
        nested, most = 0, 0

        async def a(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            nonlocal nested, most
            if message.text == "back":
                nested += 1
                most = max(most, nested)
                await turns_of_the_loop(3)
                nested -= 1
                return "back"
            return await asyncio.gather(*(agent.call(name) for name in ("b", "c", "d")))

        async def come_back(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            return await agent.call("a", "back")

        await host(runtime, "a", a)
        for name in ("b", "c", "d"):
            await host(runtime, name, come_back)
        await start(runtime)
        assert await asyncio.wait_for(runtime.send_message(Ask(), agent("a")), 10) == ["back"] * 3
        assert most == 1

    @case()
    async def test_other_messages_wait_until_the_whole_turn_has_ended(self, runtime: Any) -> None:
        seen: list[str] = []
        gate = asyncio.Event()

        async def a(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            seen.append(message.text)
            if message.text == "first":
                await agent.call("b")
                seen.append("first ended")

        async def b(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            await gate.wait()
            await agent.call("a", "back")

        await host(runtime, "a", a)
        await host(runtime, "b", b)
        await start(runtime)
        first = asyncio.create_task(runtime.send_message(Ask(text="first"), agent("a")))
        await eventually(lambda: seen)
        second = asyncio.create_task(runtime.send_message(Ask(text="second"), agent("a")))
        await turns_of_the_loop()
        gate.set()
        await asyncio.wait_for(asyncio.gather(first, second), 10)
        assert seen == ["first", "back", "first ended", "second"]

    @case()
    async def test_agents_that_would_wait_for_each_other_get_an_error(self, runtime: Any) -> None:
        """Two roots, A calls B while B calls A: one call ends in CallCycleError, and both roots come back."""
        started: set[str] = set()
        both = asyncio.Event()

        async def cross(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            if message.text:
                return "answered"
            started.add(agent.id.type)
            if len(started) == 2:
                both.set()
            await both.wait()
            return str(await agent.call("b" if agent.id.type == "a" else "a", "cross"))

        await host(runtime, "a", cross)
        await host(runtime, "b", cross)
        await start(runtime)
        calls = (runtime.send_message(Ask(), agent(name)) for name in ("a", "b"))
        outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert errors
        assert all(isinstance(error, CallCycleError) for error in errors)

    @case()
    async def test_a_call_made_from_a_task_of_the_handler_belongs_to_the_turn(self, runtime: Any) -> None:
        async def a(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            if message.text == "back":
                return "let in"
            return await asyncio.create_task(agent.call("b"))

        async def b(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            return await agent.call("a", "back")

        await host(runtime, "a", a)
        await host(runtime, "b", b)
        await start(runtime)
        assert await asyncio.wait_for(runtime.send_message(Ask(), agent("a")), 5) == "let in"
