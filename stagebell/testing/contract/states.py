"""State and the end: what is saved can be loaded, and who stops lets open turns end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from autogen_core import MessageContext, TopicId

from stagebell.testing.contract.agents import Ask, Counting, Doing, Note, agent, collect, host
from stagebell.testing.contract.case import Room, case, start
from stagebell.testing.contract.waiting import turns_of_the_loop


class States(Room):
    """State, `stop` and `stop_when_idle`."""

    @case()
    async def test_the_state_of_a_runtime_is_saved_and_loaded(self, runtime: Any) -> None:
        await Counting.register(runtime, "counter", Counting)
        await start(runtime)
        for key in ("a", "a", "b/with: odd ключ"):
            await runtime.send_message(Ask(), agent("counter", key))
        saved = await runtime.save_state()
        assert saved == {"counter/a": {"count": 2}, "counter/b/with: odd ключ": {"count": 1}}
        await runtime.send_message(Ask(), agent("counter", "a"))
        await runtime.load_state(json.loads(json.dumps(saved)))
        assert await runtime.send_message(Ask(), agent("counter", "a")) == 3

    @case()
    async def test_the_state_of_one_agent_is_saved_and_loaded(self, runtime: Any) -> None:
        await Counting.register(runtime, "counter", Counting)
        await start(runtime)
        await runtime.send_message(Ask(), agent("counter"))
        state = await runtime.agent_save_state(agent("counter"))
        await runtime.agent_load_state(agent("counter", "other"), state)
        assert await runtime.send_message(Ask(), agent("counter", "other")) == 2

    @case()
    async def test_stop_lets_open_turns_end(self, runtime: Any) -> None:
        gate, entered = asyncio.Event(), asyncio.Event()

        async def slow(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            entered.set()
            await gate.wait()
            return "ended"

        await host(runtime, "slow", slow)
        await start(runtime)
        call = asyncio.create_task(runtime.send_message(Ask(), agent("slow")))
        await asyncio.wait_for(entered.wait(), 5)
        stopping = asyncio.create_task(runtime.stop())
        await turns_of_the_loop()
        assert not stopping.done()
        gate.set()
        assert await asyncio.wait_for(call, 5) == "ended"
        await asyncio.wait_for(stopping, 5)

    @case()
    async def test_stop_when_idle_waits_for_what_was_published(self, runtime: Any) -> None:
        seen: list[str] = []
        await host(runtime, "reader", note=collect(seen), topics=("news",))
        await start(runtime)
        for text in ("one", "two"):
            await runtime.publish_message(Note(text=text), TopicId("news", "x"))
        await runtime.stop_when_idle()
        assert seen == ["one", "two"]
