"""A store that fails: whoever waits for a run hears of it, and nothing that was not saved is told."""

from __future__ import annotations

import asyncio

import pytest

from stagebell import LocalRuntime
from stagebell.agents.stores.memory import MemoryStore
from stagebell.agents.stores.port import Snapshot
from stagebell.errors import SnapshotConflict, StoreUnusable
from stagebell.messages.conversation import RunStatus, TerminationReason
from tests.support.loops import host_model, run, says, wants

pytestmark = [pytest.mark.runtime, pytest.mark.asyncio]


class Failing(MemoryStore):
    """Refuses some of the saves."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first, self.last = first, last
        self.saves = 0

    async def save(self, key: str, snapshot: Snapshot) -> None:
        self.saves += 1
        if self.first <= self.saves <= self.last:
            await self.refuse(key, snapshot)
        await super().save(key, snapshot)

    async def refuse(self, key: str, snapshot: Snapshot) -> None:
        raise StoreUnusable(key, "/store", "the disk is full")


class Overtaken(Failing):
    """Another process is faster."""

    async def refuse(self, key: str, snapshot: Snapshot) -> None:
        await super(Failing, self).save(key, snapshot)


class Slow(MemoryStore):
    """Its first save takes for ever, before it is done or after."""

    def __init__(self, *, done: bool) -> None:
        super().__init__()
        self.done = done
        self.entered = asyncio.Event()

    async def save(self, key: str, snapshot: Snapshot) -> None:
        first = not self.entered.is_set()
        if self.done or not first:
            await super().save(key, snapshot)
        if first:
            self.entered.set()
            await asyncio.Event().wait()


def add(a: int) -> int:
    """Add one."""
    return a + 1


@pytest.mark.parametrize("number", range(2, 6))
async def test_a_save_that_fails_once(number: int) -> None:
    """The step is lost, and its run ends with that."""
    store = Failing(number, number)
    async with LocalRuntime() as runtime:
        await host_model(runtime, says(wants("add", a=1), "done"), tools=[add], store=store)
        result = await asyncio.wait_for(run(runtime), 5)
    assert (result.status, result.reason) == (RunStatus.FAILED, TerminationReason.SET_ASIDE)
    assert "the disk is full" in result.text


@pytest.mark.parametrize("number", range(1, 6))
async def test_a_store_that_fails_from_then_on(number: int) -> None:
    store = Failing(number, 1000)
    async with LocalRuntime() as runtime:
        await host_model(runtime, says(wants("add", a=1), "done"), tools=[add], store=store)
        with pytest.raises(StoreUnusable, match="the disk is full"):
            await asyncio.wait_for(run(runtime), 5)


@pytest.mark.parametrize("number", range(2, 6))
async def test_another_process_that_has_taken_the_conversation_over(number: int) -> None:
    store = Overtaken(number, number)
    async with LocalRuntime() as runtime:
        await host_model(runtime, says(wants("add", a=1), "done"), tools=[add], store=store)
        with pytest.raises(SnapshotConflict):
            await asyncio.wait_for(run(runtime), 5)


@pytest.mark.parametrize("done", [False, True])
async def test_a_save_that_is_cancelled(done: bool) -> None:
    """What was not saved has not happened; what was saved goes on."""
    store = Slow(done=done)
    async with LocalRuntime(cancel_grace=0.01) as runtime:
        model = await host_model(runtime, says("one", "two"), store=store)
        first = asyncio.create_task(run(runtime, "first"))
        await asyncio.wait_for(store.entered.wait(), 5)
        first.cancel()
        await asyncio.wait([first])
        await asyncio.wait_for(run(runtime, "second"), 5)
    assert len(model.requests) == 1 + done
