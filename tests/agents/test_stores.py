"""The stores of conversations: one contract, and what each must do beyond it."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagebell.agents.stores.json_files import JsonStore
from stagebell.agents.stores.memory import MemoryStore
from stagebell.agents.stores.port import RunStore, Snapshot
from stagebell.agents.stores.sqlite import SqliteStore
from stagebell.errors import SnapshotBroken, StoreUnusable
from stagebell.testing.contract import RunStoreContract

pytestmark = [pytest.mark.runtime, pytest.mark.asyncio]


class TestMemory(RunStoreContract):
    """The newest alone."""

    def make_store(self) -> RunStore:
        """Empty."""
        return MemoryStore()


class TestMemoryWithHistory(RunStoreContract):
    """All of them."""

    history = True

    def make_store(self) -> RunStore:
        """Empty."""
        return MemoryStore(history=True)


class OnDisk(RunStoreContract):
    """Base of those with a place."""

    place: Path

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.place = tmp_path

    def open_again(self) -> RunStore:
        """The same place."""
        return self.make_store()

    def make_store(self) -> RunStore:
        """See below."""
        raise NotImplementedError


class TestJson(OnDisk):
    """A file for each."""

    def make_store(self) -> RunStore:
        """In a folder that is not there yet."""
        return JsonStore(self.place / "runs", history=self.history)


class TestJsonWithHistory(TestJson):
    """All of them."""

    history = True


class TestSqlite(OnDisk):
    """One file."""

    def make_store(self) -> RunStore:
        """A file that is not there yet."""
        return SqliteStore(self.place / "runs.db", history=self.history)


class TestSqliteWithHistory(TestSqlite):
    """All of them."""

    history = True


STORES: dict[str, Callable[[Path], RunStore]] = {
    "json": lambda place: JsonStore(place / "runs"),
    "sqlite": lambda place: SqliteStore(place / "runs.db"),
}


async def test_json_files_are_read_by_people_and_leave_nothing_beside_them(tmp_path: Path) -> None:
    """One file, with the text as it is."""
    store = JsonStore(tmp_path)
    for version in (1, 2):
        await store.save("support/42", Snapshot(version, {"name": "Zoë"}))
    files = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()]  # noqa: ASYNC240
    assert files == ["support%2F42/00000002.json"]
    assert "Zoë" in (tmp_path / files[0]).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": "1", "state": {}}', "\ud800"])
@pytest.mark.parametrize("kind", STORES)
async def test_what_cannot_be_read_is_told_and_kept(kind: str, text: str, tmp_path: Path) -> None:
    """The error names the conversation and the file."""
    store = STORES[kind](tmp_path)
    await store.save("a", Snapshot(1, {}))
    await store.close()
    broken = text.encode("utf-8", "surrogatepass")
    if kind == "json":
        file = tmp_path / "runs" / "a" / "00000001.json"
        file.write_bytes(broken)
    else:
        file = tmp_path / "runs.db"
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE snapshots SET snapshot = ?", (broken,))
    with pytest.raises(SnapshotBroken, match=r"conversation a in .* left as it is") as caught:
        await store.load("a")
    assert str(file) in caught.value.place
    if kind == "json":
        assert file.read_bytes() == broken
    await store.close()


_SAVE_FOR_EVER = """
import asyncio, sys
from pathlib import Path
from stagebell.agents.stores.json_files import JsonStore
from stagebell.agents.stores.port import Snapshot
from stagebell.agents.stores.sqlite import SqliteStore

async def save():
    store = JsonStore(sys.argv[2]) if sys.argv[1] == "json" else SqliteStore(sys.argv[2])
    found = await store.load("a")
    version = found.version if found else 0
    while True:
        version += 1
        await store.save("a", Snapshot(version, {"version": version, "filler": "x" * 100_000}))
        print(version, flush=True)

asyncio.run(save())
"""


@pytest.mark.parametrize("kind", STORES)
async def test_a_kill_at_any_point_of_a_save_leaves_the_old_or_the_new_state(kind: str, tmp_path: Path) -> None:
    """Eight processes, each killed somewhere in its saves."""
    chance, newest = random.Random(7), 0
    place = tmp_path / {"json": "runs", "sqlite": "runs.db"}[kind]
    for _ in range(8):
        command = (sys.executable, "-c", _SAVE_FOR_EVER, kind, str(place))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            said = await process.stdout.readline()
            await asyncio.sleep(chance.random() * 0.02)  # anywhere in the saves that follow
            process.kill()
            said += await process.stdout.read()
            await process.wait()
        acknowledged = max(map(int, said.split()))
        store = STORES[kind](tmp_path)
        found = await store.load("a")
        assert found is not None
        assert found.state["version"] == found.version
        assert found.version in (acknowledged, acknowledged + 1)
        assert found.version > newest
        newest = found.version
        await store.close()


async def test_who_opens_a_new_file_waits_for_another_who_does(tmp_path: Path) -> None:
    """SQLite itself refuses that at once."""
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store = SqliteStore(tmp_path / "runs.db")
    saving = asyncio.create_task(store.save("a", Snapshot(1, {})))
    await asyncio.wait([saving], timeout=0.2)
    assert not saving.done()
    other.execute("COMMIT")
    other.close()
    await asyncio.wait_for(saving, 10)
    assert await store.load("a") == Snapshot(1, {})
    await store.close()


async def test_a_snapshot_has_a_version(tmp_path: Path) -> None:
    """From 1 on."""
    stores: list[Any] = [MemoryStore(), JsonStore(tmp_path), SqliteStore(tmp_path / "runs.db")]
    for store in stores:
        with pytest.raises(ValueError, match="version of a snapshot"):
            await store.save("a", Snapshot(0, {}))
        await store.close()
    assert "a" not in os.listdir(tmp_path)


async def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder and no database at all, whatever it is read as")
    for store in (
        JsonStore(tmp_path / "file"),
        SqliteStore(tmp_path / "file"),
        SqliteStore(tmp_path / "nowhere" / "runs.db"),
    ):
        with pytest.raises(StoreUnusable, match=r"conversation clerk/1 cannot .* in .*; see that") as refused:
            await store.save("clerk/1", Snapshot(1, {}))
        assert isinstance(refused.value, OSError)
        await store.close()


async def test_a_full_disk_is_named_and_a_save_comes_through_when_there_is_room_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    await store.save("c", Snapshot(1, {"text": "small"}))

    def let_pages_be(number: int) -> Callable[[sqlite3.Connection], None]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {number}").close()

    await store._run("c", let_pages_be(4))
    large = Snapshot(2, {"text": "large" * 10_000})
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="disk is full"):
            await store.save("c", large)
    assert await store.versions("c") == [1]
    await store._run("c", let_pages_be(1_000_000))
    await store.save("c", large)
    assert await store.load("c") == large
    await store.close()
