"""Snapshots in memory: for tests, and for conversations that may end with their process."""

from __future__ import annotations

from stagebell.agents.stores.encoding import read, write
from stagebell.agents.stores.port import Snapshot
from stagebell.errors import SnapshotConflict


class MemoryStore:
    """Keeps snapshots for as long as it lives itself.

    Args:
        history: keep every snapshot, not the newest alone.
    """

    def __init__(self, *, history: bool = False) -> None:
        self._history = history
        self._texts: dict[str, dict[int, bytes]] = {}

    async def save(self, key: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; see `RunStore.save`."""
        text = write(snapshot)
        kept = self._texts.setdefault(key, {})
        newest = max(kept, default=0)
        if snapshot.version <= newest:
            raise SnapshotConflict(key, snapshot.version, newest)
        if not self._history:
            kept.clear()
        kept[snapshot.version] = text

    async def load(self, key: str, version: int | None = None) -> Snapshot | None:
        """The newest snapshot, or that of a version; see `RunStore.load`."""
        kept = self._texts.get(key, {})
        wanted = max(kept, default=0) if version is None else version
        return read(key, "memory", kept[wanted]) if wanted in kept else None

    async def versions(self, key: str) -> list[int]:
        """The versions that can be loaded, in order."""
        return sorted(self._texts.get(key, {}))

    async def close(self) -> None:
        """Nothing is open; what was saved stays."""
