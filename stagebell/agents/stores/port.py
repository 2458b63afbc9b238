"""The port: snapshots of conversations, each with the version that counts its saves.

What holds at all times
    - The store has the old state or the new one, never a part: a process may die at any point of a save.
    - A version is saved once. Who saves one that is not newer than the newest worked on an old state and is refused.
    - What cannot be read is told as it is and stays where it is.

`stagebell.testing.contract.RunStoreContract` is the suite for whoever writes a store of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state of a conversation after so many saves, from 1 on."""

    version: int
    state: Mapping[str, JsonValue]


class RunStore(Protocol):
    """Keeps snapshots under the key of their conversation."""

    async def save(self, key: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; when this returns it outlives the process (but for a store in memory).

        Raises:
            SnapshotConflict: a snapshot of this version, or of a newer one, is there.
            ValueError: the state is not JSON.
            OSError: it cannot be written (`StoreUnusable`).
        """
        ...

    async def load(self, key: str, version: int | None = None) -> Snapshot | None:
        """The newest snapshot, or that of a version; None when there is none.

        Raises:
            SnapshotBroken: what is there cannot be read.
        """
        ...

    async def versions(self, key: str) -> list[int]:
        """The versions that can be loaded, in order: all of them, or the newest alone."""
        ...

    async def close(self) -> None:
        """Release what the store holds open. It can be used again."""
        ...
