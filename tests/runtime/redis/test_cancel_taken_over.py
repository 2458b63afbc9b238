"""Cancels and deadlines that the owner of a message has not dealt with: the next owner does, or a former one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import CancellationToken, MessageContext, TopicId

from stagebell import Publisher, RedisRuntime, Retry, agent_options
from stagebell.errors import DeadlineExceeded
from stagebell.testing import crash, freeze
from tests.failure.view import View
from tests.support.agents import Ask, Doing, Note, OnAsk, agent, host
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class Callee:
    """A handler that waits until it is cancelled."""

    def __init__(self) -> None:
        self.entered = 0
        self.cancelled = 0

    async def __call__(self, agent: Doing, message: Any, ctx: MessageContext) -> None:
        self.entered += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def calls_two(caller: Doing, message: Ask, ctx: MessageContext) -> Any:
    """Calls two at once."""
    return await asyncio.gather(*(caller.send_message(Ask(), agent("callee", key)) for key in "ab"))


class Bench:
    """Runtimes of one namespace, and a client."""

    def __init__(self, server: Server, namespace: str, client: Publisher) -> None:
        self.client = client
        self.view = View(server.client(), namespace)
        self._url, self._namespace = server.url, namespace
        self._made: list[RedisRuntime] = []

    async def start(self, *types: tuple[str, OnAsk], cls: type[Doing] = Doing, **options: Any) -> RedisRuntime:
        runtime = RedisRuntime(self._url, namespace=self._namespace, partitions=1, lease=0.6, **options)
        for name, ask in types:
            await host(runtime, name, ask, cls=cls)
        await runtime.start()
        self._made.append(runtime)
        return runtime

    async def caller_and_callee(self) -> tuple[RedisRuntime, Callee]:
        """The runtime of the caller, and the callee, which lives in another one."""
        callee = Callee()
        await self.start(("callee", callee))
        return await self.start(("caller", calls_two)), callee

    def marks(self) -> int:
        """How many messages are to be ended, by what is stored."""
        return sum(self.view.client.xlen(key) for key in self.view.keys("}:ctl"))

    def failures(self) -> int:
        """How many attempts have failed and are counted."""
        return sum(int(self.view.client.hexists(key, "#f")) for key in self.view.keys("") if "}:j:" in key)

    async def at_rest(self) -> None:
        await eventually(lambda: self.view.backlog() == 0, within=8)
        await eventually(lambda: not self.view.left_behind(), within=5)
        assert not self.view.against_the_list()

    async def close(self) -> None:
        await asyncio.gather(*(runtime.close() for runtime in self._made))
        self.view.client.close()


@pytest.fixture
async def bench(server: Server, namespace: str) -> AsyncIterator[Bench]:
    async with Publisher(server.url, namespace=namespace) as client:
        client.register(Ask, Note)
        bench = Bench(server, namespace, client)
        yield bench
        await bench.close()


async def given_up(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_the_calls_of_a_cancelled_turn_end_although_its_worker_died(bench: Bench) -> None:
    victim, callee = await bench.caller_and_callee()
    call = asyncio.create_task(bench.client.call(Ask(), agent("caller")))
    await eventually(lambda: callee.entered == 2, 8)
    freeze(victim)
    await given_up(call)
    await eventually(lambda: bench.marks() == 1, 8)
    await crash(victim)
    await bench.start(("caller", calls_two))
    await eventually(lambda: callee.cancelled == 2, 8)
    await bench.at_rest()
    assert callee.entered == 2


async def test_the_calls_of_a_turn_that_is_too_late_end_although_its_worker_died(bench: Bench) -> None:
    victim, callee = await bench.caller_and_callee()
    call = asyncio.create_task(bench.client.call(Ask(), agent("caller"), timeout=1.5))
    await eventually(lambda: callee.entered == 2, 8)
    await crash(victim)
    with pytest.raises(DeadlineExceeded):
        await call
    await bench.start(("caller", calls_two))
    await eventually(lambda: callee.cancelled == 2, 8)
    await bench.at_rest()


@agent_options(retry=Retry(attempts=3, first_delay=60.0, longest_delay=60.0))
class TriedAgain(Doing):
    """Its second attempt does not come within this test."""


async def test_calls_that_a_failed_attempt_left_open_end_with_the_cancel_of_its_message(bench: Bench) -> None:
    callee = Callee()
    failed = asyncio.Event()

    async def calls_and_fails(caller: Doing, message: Note, ctx: MessageContext) -> None:
        call = asyncio.ensure_future(caller.send_message(Ask(), agent("callee")))
        await eventually(lambda: callee.entered == 1, 8)
        failed.set()
        raise ValueError(f"the call {call} is still open")

    far = await bench.start(("callee", callee))
    near = await bench.start()
    await host(near, "caller", note=calls_and_fails, topics=("notes",), cls=TriedAgain)
    token = CancellationToken()
    await far.publish_message(Note(), TopicId("notes", "default"), cancellation_token=token)
    await asyncio.wait_for(failed.wait(), 8)
    await eventually(lambda: bench.failures() == 1, 8)
    assert callee.cancelled == 0
    token.cancel()
    await eventually(lambda: callee.cancelled == 1, 8)
    await bench.at_rest()


async def test_a_turn_that_goes_on_at_a_former_owner_is_cancelled_there(bench: Bench) -> None:
    """The bell rings at the new owner, so the former one looks for itself."""
    old_callee, new_callee = Callee(), Callee()
    old = await bench.start(("held", old_callee), stop_grace=20.0)
    call = asyncio.create_task(bench.client.call(Ask(), agent("held")))
    await eventually(lambda: old_callee.entered == 1, 8)
    new = await bench.start(("held", new_callee))
    later = asyncio.create_task(bench.client.call(Ask(), agent("held")))
    closing = asyncio.create_task(old.close())
    name = new._running("a test").client.name
    await eventually(lambda: len(bench.view.owned_by(name)) == 2 and bench.view.keys("}:hold"), 8)
    assert (old_callee.cancelled, new_callee.entered) == (0, 0)
    await given_up(call)
    await eventually(lambda: old_callee.cancelled == 1, 2)
    await eventually(lambda: new_callee.entered == 1, 8)  # the message that came later, and only that
    await given_up(later)
    await asyncio.wait_for(closing, 8)
    await bench.at_rest()
    assert (old_callee.entered, new_callee.entered, new_callee.cancelled) == (1, 1, 1)
