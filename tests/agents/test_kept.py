"""Conversations that outlive their process on `LocalRuntime`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from autogen_core import AgentId

from stagebell import LocalRuntime
from stagebell.agents.runs import Runs
from stagebell.agents.stores.json_files import JsonStore
from stagebell.agents.stores.memory import MemoryStore
from stagebell.agents.stores.port import RunStore, Snapshot
from stagebell.agents.stores.sqlite import SqliteStore
from stagebell.errors import SnapshotBroken, SnapshotConflict, StateMismatch
from stagebell.messages.conversation import RunStatus
from stagebell.testing import crash
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import Status
from stagebell.tools.tool import tool
from tests.support.loops import host_model, results, run, says, sent, wants
from tests.support.waiting import eventually

pytestmark = [pytest.mark.runtime, pytest.mark.asyncio]

MAKERS: dict[str, Callable[[Path], RunStore]] = {
    "memory": lambda place: MemoryStore(),
    "json": lambda place: JsonStore(place / "runs"),
    "sqlite": lambda place: SqliteStore(place / "runs.db"),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    """Each of them."""
    return MAKERS[request.param](tmp_path)


@asynccontextmanager
async def hosting(model: Any, **options: Any) -> Any:
    """A runtime with such an agent; it dies with the block when that says so."""
    runtime = LocalRuntime()
    await host_model(runtime, model, **options)
    runtime.start()
    try:
        yield runtime
    finally:
        await crash(runtime)


async def test_a_conversation_goes_on_in_another_process(store: RunStore) -> None:
    """The model hears what was said before."""
    async with hosting(says("first"), store=store) as runtime:
        assert (await run(runtime, "one")).output == "first"
    model = says("second")
    async with hosting(model, store=store) as runtime:
        assert (await run(runtime, "two")).output == "second"
    assert "one" in sent(model)
    assert "first" in sent(model)
    await store.close()


class Till:
    """Something outside that charges, and can be made to stand still while it does."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.stands, self.reached = False, asyncio.Event()

    async def charge(self, context: ToolContext[None]) -> str:
        """Charge."""
        self.charges.append(context.idempotency_key)
        self.reached.set()
        if self.stands:
            await asyncio.Event().wait()
        return "charged"

    async def status(self, context: ToolContext[None]) -> Status:
        """What became of it."""
        return Status("succeeded", "charged") if context.idempotency_key in self.charges else Status("absent")


@pytest.mark.parametrize(
    ("declared", "charges", "outcome"),
    [
        ({"effects": "side", "status": True}, 1, "charged"),
        ({"effects": "idempotent"}, 2, "charged"),
        ({}, 1, "outcome_unknown"),
    ],
)
async def test_a_call_that_a_dead_process_had_begun_is_never_made_blindly(
    store: RunStore, declared: dict[str, Any], charges: int, outcome: str
) -> None:
    """Its tool finds out, or may run again with the same key, or tells that nobody knows."""
    till = Till()
    options = {**declared, **({"status": till.status} if "status" in declared else {})}
    charge = tool(till.charge, name="charge", **options)
    till.stands = True
    async with hosting(says(wants("charge")), tools=[charge], store=store) as runtime:
        handle = await Runs(runtime).start("assistant", "pay", conversation="c")
        await asyncio.wait_for(till.reached.wait(), 10)
    till.stands = False
    async with hosting(says("done"), tools=[charge], store=store) as runtime:
        again = Runs(runtime).get(handle.run_id)
        result = await asyncio.wait_for(again.result(), 10)
        assert (result.output or result.reason) == ("fatal_tool_error" if outcome == "outcome_unknown" else "done")
        assert results((await again.state()).conversation) == [outcome]
    assert len(till.charges) == charges
    assert len(set(till.charges)) == 1
    await store.close()


async def test_a_call_that_is_known_to_have_failed_is_decided_anew(store: RunStore) -> None:
    """The model is asked again, with what the service said; the call is not made a second time."""

    async def failed(context: ToolContext[None]) -> Status:
        return Status("failed", "the card has expired")

    till, model = Till(), says("sorry")
    till.stands = True
    charge = tool(till.charge, name="charge", effects="side", status=failed)
    async with hosting(says(wants("charge")), tools=[charge], store=store) as runtime:
        handle = await Runs(runtime).start("assistant", "pay", conversation="c")
        await asyncio.wait_for(till.reached.wait(), 10)
    async with hosting(model, tools=[charge], store=store) as runtime:
        result = await asyncio.wait_for(Runs(runtime).get(handle.run_id).result(), 10)
    assert (result.status, result.output) == (RunStatus.SUCCEEDED, "sorry")
    assert "the card has expired" in sent(model)
    assert len(till.charges) == 1
    await store.close()


async def test_a_call_that_was_not_begun_is_made(store: RunStore) -> None:
    """Not every call that has no result may have been made."""
    till = Till()
    charge = tool(till.charge, name="charge")
    async with hosting(says(wants("charge")), tools=[charge], store=store) as runtime:
        handle = await Runs(runtime).start("assistant", "pay", conversation="c", paused=True)
        assert await handle.step() is RunStatus.PAUSED
    assert not till.charges
    async with hosting(says("done"), tools=[charge], store=store) as runtime:
        again = Runs(runtime).get(handle.run_id)
        await again.resume()
        assert (await asyncio.wait_for(again.result(), 10)).output == "done"
        assert results((await again.state()).conversation) == ["charged"]
    await store.close()


class Slow(MemoryStore):
    """Takes its time for the save of a run's end."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def save(self, key: str, snapshot: Snapshot) -> None:
        """Wait, when it is the end."""
        if "'kind': 'finished'" in str(snapshot.state):
            await self.gate.wait()
        await super().save(key, snapshot)


async def test_a_result_is_saved_before_it_is_told() -> None:
    """A caller that has its answer finds it again."""
    store = Slow()
    async with hosting(says("done"), store=store) as runtime:
        asked = asyncio.ensure_future(run(runtime))
        await eventually(lambda: bool(store._texts))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not asked.done()
        told = (await runtime.agent_save_state(AgentId("assistant", "c")))["conversation"]
        assert [entry["kind"] for entry in told][-1] != "finished"
        store.gate.set()
        assert (await asked).output == "done"


async def test_nobody_saves_over_what_another_process_has_saved(store: RunStore) -> None:
    """The turn ends in an error, and the next one works on the newer state."""
    first_model, second_model = says("one", "three"), says("two")
    async with hosting(first_model, store=store) as first, hosting(second_model, store=store) as second:
        await run(first, "a")
        await run(second, "b")
        with pytest.raises(SnapshotConflict):
            await run(first, "c")
        assert (await run(first, "d")).output == "three"
    assert "two" in sent(first_model)
    await store.close()


async def test_what_cannot_be_read_is_an_error_and_stays() -> None:
    """Of another type, of a newer version, or no state at all."""
    for state, error in (
        ({"type": "Other", "version": 1, "begun": False, "state": {}}, StateMismatch),
        ({"type": "ModelAgent", "version": 99, "begun": False, "state": {}}, StateMismatch),
        ({"type": "ModelAgent", "version": 1, "state": {}}, SnapshotBroken),
    ):
        store = MemoryStore()
        await store.save("assistant/c", Snapshot(1, state))
        async with hosting(says("x"), store=store) as runtime:
            with pytest.raises(error):
                await run(runtime)
        assert await store.load("assistant/c") == Snapshot(1, state)


async def test_every_change_can_be_kept() -> None:
    """With a history, the state after each step can be loaded."""
    store = MemoryStore(history=True)
    async with hosting(says("done"), store=store) as runtime:
        await run(runtime)
    versions = await store.versions("assistant/c")
    kept = [snapshot for each in versions if (snapshot := await store.load("assistant/c", each)) is not None]
    lengths = [len(snapshot.state["state"]["conversation"]) for snapshot in kept]
    assert lengths == sorted(lengths)
    assert lengths[0] == 1
    assert lengths[-1] == 3
