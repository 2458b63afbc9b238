"""A worker runs so many turns at once and no more, but for the calls on which open turns wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId, MessageContext

from stagebell import RedisRuntime
from tests.support.agents import Ask, Doing, agent, echo, host
from tests.support.servers import Server
from tests.support.waiting import eventually, turns_of_the_loop

pytestmark = pytest.mark.integration


class Crowd:
    """Counts the turns that are open at once; they wait until it says so."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.go_on = asyncio.Event()

    async def ask(self, me: Doing, message: Ask, ctx: MessageContext) -> Any:
        self.now += 1
        self.most = max(self.now, self.most)
        try:
            await self.go_on.wait()
            return await me.call(AgentId(message.text, me.id.key)) if message.text else message.number
        finally:
            self.now -= 1


async def test_no_more_turns_than_allowed_are_open_at_once(server: Server, namespace: str) -> None:
    crowd = Crowd()
    async with RedisRuntime(server.url, namespace=namespace, max_running_turns=3) as runtime:
        await host(runtime, "crowd", crowd.ask)
        calls = [
            asyncio.create_task(runtime.send_message(Ask(number=number), agent("crowd", str(number % 7))))
            for number in range(20)
        ]
        await eventually(lambda: crowd.now == 3)
        await eventually(lambda: runtime._dispatcher.queued == 17)
        await turns_of_the_loop()
        assert crowd.now == 3
        crowd.go_on.set()
        assert await asyncio.gather(*calls) == list(range(20))
        assert crowd.most == 3
        await runtime.stop_when_idle(timeout=5)


async def test_calls_from_turns_are_let_in_beyond_the_limit(server: Server, namespace: str) -> None:
    crowd = Crowd()
    async with RedisRuntime(server.url, namespace=namespace, max_running_turns=2) as runtime:
        await host(runtime, "crowd", crowd.ask)
        await host(runtime, "leaf", echo)
        calls = [
            asyncio.create_task(runtime.send_message(Ask(text="leaf"), agent("crowd", str(number))))
            for number in range(6)
        ]
        await eventually(lambda: crowd.now == 2)
        # The leaves have messages from outside before the calls that come; these go on with the calls.
        calls += [asyncio.create_task(runtime.send_message(Ask(), agent("leaf", str(number)))) for number in range(6)]
        await eventually(lambda: runtime._dispatcher.queued == 10)
        crowd.go_on.set()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*calls) == [""] * 12
        assert crowd.most == 2


async def test_a_place_is_free_again_when_those_who_waited_for_it_have_gone(server: Server, namespace: str) -> None:
    crowd = Crowd()
    async with RedisRuntime(server.url, namespace=namespace, max_running_turns=1) as runtime:
        await host(runtime, "crowd", crowd.ask)
        first = asyncio.create_task(runtime.send_message(Ask(number=1), agent("crowd", "first")))
        await eventually(lambda: crowd.now == 1)
        calls = [
            asyncio.create_task(runtime.send_message(Ask(number=2), agent("crowd", key))) for key in ("gone", "stays")
        ]
        await eventually(lambda: runtime._dispatcher.queued == 2)
        for activation in runtime._catalog.every_activation():
            for entry in [*(activation.mailbox or ())][: activation.id.key == "gone"]:
                runtime._dispatcher.withdraw(entry)
        crowd.go_on.set()
        async with asyncio.timeout(20):
            assert (await first, await calls[1]) == (1, 2)
        calls[0].cancel()
