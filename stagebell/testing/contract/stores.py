"""What every store of conversations does; see `RunStoreContract`."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from stagebell.agents.stores.port import RunStore, Snapshot
from stagebell.errors import SnapshotConflict

KEYS = ("a", "A", "support/42", "../../etc/passwd", ".", "ä ö.json", "k" * 3_000, "k" * 3_000 + "l", "a\0b", "")


class RunStoreContract:
    """The suite for whoever writes a `RunStore`, as a pytest class.

    @pytest.mark.asyncio
    class TestMyStore(RunStoreContract):
        def make_store(self):  # empty, a new one for each case; may be a coroutine function
            return MyStore()

        def open_again(self):  # the same data, as another process would open it; None when it is in memory
            return MyStore()

    Set `history = True` when the store keeps every snapshot.
    """

    history = False

    def make_store(self) -> Any:
        """A new and empty store."""
        raise NotImplementedError("make_store returns a new and empty store")

    def open_again(self) -> Any:
        """The data of the store made last, as another process would open it."""
        return None

    async def _made(self) -> RunStore:
        made = self.make_store()
        store: RunStore = await made if inspect.isawaitable(made) else made
        return store

    async def test_a_snapshot_comes_back_as_it_was(self) -> None:
        """JSON of every kind; what was given cannot be changed afterwards."""
        store = await self._made()
        state: dict[str, Any] = {"text": "ä\u2028\0 ", "deep": [{"a": [None, True, 0.1, -3, 10**15]}], "empty": {}}
        await store.save("a", Snapshot(1, state))
        state["text"] = "changed"
        found = await store.load("a")
        assert found is not None
        assert found == Snapshot(1, {**state, "text": "ä\u2028\0 "})
        await store.close()

    async def test_nothing_is_found_where_nothing_was_saved(self) -> None:
        """Neither the newest nor any version."""
        store = await self._made()
        assert await store.load("a") is None
        assert await store.load("a", 1) is None
        assert await store.versions("a") == []
        await store.save("a", Snapshot(2, {}))
        assert await store.load("a", 1) is None
        await store.close()

    async def test_keys_are_any_text_and_stay_apart(self) -> None:
        """Long ones, ones that look like paths, and ones that differ in case alone."""
        store = await self._made()
        for number, key in enumerate(KEYS):
            await store.save(key, Snapshot(1, {"number": number}))
        for number, key in enumerate(KEYS):
            assert await store.load(key) == Snapshot(1, {"number": number}), key
        await store.close()

    async def test_the_newest_snapshot_counts(self) -> None:
        """With a history the others can be loaded as well, without one they are gone."""
        store = await self._made()
        for version in (1, 2, 11):
            await store.save("a", Snapshot(version, {"version": version}))
        assert await store.load("a") == Snapshot(11, {"version": 11})
        assert await store.versions("a") == ([1, 2, 11] if self.history else [11])
        assert await store.load("a", 2) == (Snapshot(2, {"version": 2}) if self.history else None)
        await store.close()

    async def test_an_old_version_is_refused(self) -> None:
        """As is one that is there already; nothing is changed by that."""
        store = await self._made()
        await store.save("a", Snapshot(3, {"kept": True}))
        for version in (1, 2, 3):
            try:
                await store.save("a", Snapshot(version, {}))
            except SnapshotConflict as conflict:
                told = conflict
            else:
                raise AssertionError(f"version {version} was saved after version 3")
            assert (told.key, told.version, told.newest) == ("a", version, 3)
        assert await store.load("a") == Snapshot(3, {"kept": True})
        await store.close()

    async def test_of_those_who_save_one_version_at_once_one_wins(self) -> None:
        """Also when they came through two stores on the same data."""
        stores = [await self._made()]
        stores += [again] if (again := self.open_again()) is not None else []
        saves = [store.save("a", Snapshot(1, {"number": number})) for number, store in enumerate(stores * 8)]
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        won = [number for number, outcome in enumerate(outcomes) if outcome is None]
        assert len(won) == 1
        assert all(isinstance(outcome, SnapshotConflict) for outcome in outcomes if outcome is not None)
        assert await stores[0].load("a") == Snapshot(1, {"number": won[0]})
        for store in stores:
            await store.close()

    async def test_what_is_not_json_is_refused(self) -> None:
        """With nothing saved."""
        store = await self._made()
        wrong: tuple[Any, ...] = ({"a": object()}, {"a": float("nan")}, {"a": {1}})
        for state in wrong:
            try:
                await store.save("a", Snapshot(1, state))
            except ValueError:
                continue
            raise AssertionError(f"{state} was saved")
        assert await store.load("a") is None
        await store.close()

    async def test_it_can_be_opened_again(self) -> None:
        """By another process, and by the same after `close`."""
        store = await self._made()
        await store.save("a", Snapshot(1, {"there": True}))
        again: RunStore | None = self.open_again()
        if again is not None:
            assert await again.load("a") == Snapshot(1, {"there": True})
            await again.close()
        await store.close()
        assert await store.load("a") == Snapshot(1, {"there": True})
        await store.close()
