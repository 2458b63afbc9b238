"""What a turn notes down: the first value under a name stays until the turn ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import MessageContext

from stagebell.errors import OutsideTurn
from stagebell.runtime.engine.journal import record, recorded
from tests.support.agents import Answer, Ask, Bound, Doing, agent, host


class Keeping(Doing):
    """Keeps a state."""

    async def save_state(self) -> Mapping[str, Any]:
        return {"words": self.words}


async def twice(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
    """Record two values under one name, and one under another."""
    assert await recorded("intent: ä\n") is None
    first = await record("intent: ä\n", "one\0 two\n")
    assert await recorded("intent: ä\n") == "one\0 two\n"
    again = await record("intent: ä\n", "three")
    other = await record("#r", "")
    return Answer(text=f"{first!r} {again!r} {other!r} {await record('#r', 'x')!r}")


@pytest.mark.parametrize("cls", [Doing, Keeping, Bound])
async def test_the_first_value_stays_and_ends_with_the_turn(runtime: Any, start: Any, cls: Any) -> None:
    await host(runtime, "doing", twice, cls=cls)
    await start(runtime)
    for _ in range(2):
        answer = await runtime.send_message(Ask(), agent("doing"))
        assert answer.text == f"None {'one' + chr(0) + ' two' + chr(10)!r} None ''"


async def test_a_nested_turn_has_records_of_its_own(runtime: Any, start: Any) -> None:
    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        before = await record("name", message.text)
        if message.text == "nested":
            return Answer(text=f"{before}")
        nested = await doing.call("back")
        return Answer(text=f"{before} {nested.text} {await record('name', '')}")

    async def back(doing: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await doing.runtime.send_message(Ask(text="nested"), agent("doing"), sender=doing.id)

    await host(runtime, "doing", ask)
    await host(runtime, "back", back)
    await start(runtime)
    assert (await runtime.send_message(Ask(text="outer"), agent("doing"))).text == "None None outer"


async def test_a_record_leaves_the_calls_of_its_turn_alone(runtime: Any, start: Any) -> None:
    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        replies = await asyncio.gather(*(doing.call("other") for _ in range(3)), record("0.0", "mine"))
        return Answer(text=f"{[reply and reply.text for reply in replies]} {await record('0.0', '')}")

    async def other(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        return Answer(text="other")

    await host(runtime, "doing", ask)
    await host(runtime, "other", other)
    await start(runtime)
    answer = await runtime.send_message(Ask(), agent("doing"))
    assert answer.text == "['other', 'other', 'other', None] mine"


async def test_outside_of_a_turn_there_is_nothing_to_record_in(runtime: Any, start: Any) -> None:
    late: list[BaseException] = []
    ended, told = asyncio.Event(), asyncio.Event()

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        async def afterwards() -> None:
            await ended.wait()
            try:
                await record("late", "x")
            except OutsideTurn as error:
                late.append(error)
            told.set()

        doing.keep = asyncio.create_task(afterwards())
        return Answer(text="ended")

    await host(runtime, "doing", ask)
    await start(runtime)
    with pytest.raises(OutsideTurn, match=r"record\(\) was called where no message"):
        await record("name", "value")
    with pytest.raises(OutsideTurn, match=r"recorded\(\)"):
        await recorded("name")
    await runtime.send_message(Ask(), agent("doing"))
    ended.set()
    await asyncio.wait_for(told.wait(), 5)
    assert [type(error) for error in late] == [OutsideTurn]
