"""Calls are cancelled while workers are killed and frozen: a cancel is handled by whoever owns the callee next."""

from __future__ import annotations

import asyncio

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from stagebell.errors import DeadlineExceeded
from tests.failure.agents import Count, File, Measured
from tests.failure.hopping import Hop
from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

SLOW = AgentId("slow", "a")
LONG = File(sender="s", number=1, pause=60)


async def at_rest(view: View) -> None:
    await eventually(lambda: view.backlog() == 0, within=15)
    await eventually(lambda: not view.left_behind(), within=5)
    assert not view.against_the_list()


def marks(view: View) -> int:
    """How many messages are to be ended, by what is stored."""
    return sum(view.client.xlen(key) for key in view.keys("}:ctl"))


async def given_up(call: asyncio.Task[object]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_cancel_outlives_the_worker_that_should_have_seen_it(
    server: Server, workers: Workers, view: View
) -> None:
    """I10: a cancel is durable until it is handled."""
    (owner,) = await workers.start("troubles", lease=1.0)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Measured, Count)
        running = asyncio.create_task(publisher.call(LONG, SLOW))
        waiting = asyncio.create_task(publisher.call(LONG, SLOW))
        await eventually(lambda: view.begun() == 1 and view.backlog() == 2, within=15)
        owner.freeze()
        await given_up(running)
        await given_up(waiting)
        await eventually(lambda: marks(view) == 2, within=15)
        owner.kill()
        await workers.start("troubles", lease=1.0)
        await at_rest(view)
        answer = await asyncio.wait_for(publisher.call(File(sender="s", number=2), SLOW), 15)
    assert answer.noted == 1
    assert not view.dead_letters()


async def test_the_time_out_of_a_call_outlives_the_worker_of_its_callee(
    server: Server, workers: Workers, view: View
) -> None:
    (owner,) = await workers.start("troubles", lease=1.0)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Measured, Count)
        call = asyncio.create_task(publisher.call(LONG, SLOW, timeout=2.0))
        await eventually(lambda: view.begun() == 1, within=15)
        owner.kill()
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(call, 15)
        await workers.start("troubles", lease=1.0)
        await at_rest(view)
        answer = await asyncio.wait_for(publisher.call(File(sender="s", number=2), SLOW), 15)
    assert answer.noted == 1


@pytest.mark.parametrize("policy", [True, False])
async def test_a_call_whose_caller_is_gone_is_cancelled_if_the_owner_wants_it(
    server: Server, workers: Workers, view: View, policy: bool
) -> None:
    await workers.start("troubles", cancel_when_caller_gone="true" if policy else "false")
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        call = asyncio.create_task(publisher.call(LONG, SLOW))
        await eventually(lambda: view.begun() == 1, within=15)
        (alive,) = [key for key in view.keys("}:alive") if not view.worker_of_client(key)]
    await asyncio.wait([call])
    await eventually(lambda: alive not in view.keys("}:alive"), within=5)
    if policy:
        await at_rest(view)
    else:
        await asyncio.sleep(1.5)  # the owner looks twice a second
        assert view.begun() == 1


async def test_a_chain_of_calls_over_several_workers_is_cancelled_to_its_end(
    server: Server, workers: Workers, view: View
) -> None:
    await workers.start("troubles", 2, lease=1.0)
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Measured, Count)
        hop = Hop(to=["b", "c"])
        assert (await asyncio.wait_for(publisher.call(hop, AgentId("hopper", "a")), 15)).count == 3
        call = asyncio.create_task(publisher.call(Hop(to=["b", "c"], last=60), AgentId("hopper", "a")))
        await eventually(lambda: view.begun() == 3, within=15)
        await given_up(call)
        await at_rest(view)
