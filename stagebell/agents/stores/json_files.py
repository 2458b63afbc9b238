"""Snapshots as JSON files, for people to read: `<folder>/<key>/<version>.json`.

A file is written beside its place, forced to the disk, and linked to its name, which fails when that is taken: so a
name stands for a whole file at any time, and of two processes that save one version one is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import quote

from stagebell.agents.stores.encoding import read, used, write
from stagebell.agents.stores.port import Snapshot
from stagebell.errors import SnapshotBroken, SnapshotConflict

_LONGEST_NAME: Final = 120
_FILE: Final = re.compile(r"(\d{1,18})\.json")


class JsonStore:
    """Keeps each snapshot in a file of its own.

    Args:
        folder: where; made when the first snapshot is saved. Several processes may share it.
        history: keep every snapshot, not the newest alone.
    """

    def __init__(self, folder: str | os.PathLike[str], *, history: bool = False) -> None:
        self._folder = Path(folder)
        self._history = history

    async def save(self, key: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; see `RunStore.save`."""
        text = write(snapshot)
        with used(key, str(self._folder)):
            await asyncio.to_thread(self._save, key, snapshot.version, text)

    async def load(self, key: str, version: int | None = None) -> Snapshot | None:
        """The newest snapshot, or that of a version; see `RunStore.load`."""
        with used(key, str(self._folder)):
            return await asyncio.to_thread(self._load, key, version)

    async def versions(self, key: str) -> list[int]:
        """The versions that can be loaded, in order."""
        with used(key, str(self._folder)):
            found = await asyncio.to_thread(_versions, self._place(key))
        return found if self._history else found[-1:]

    async def close(self) -> None:
        """Nothing is open."""

    def _place(self, key: str) -> Path:
        name = quote(key, safe=" @+")
        if len(name) > _LONGEST_NAME or name.strip(". ") != name or not name:
            name = f"{name[: _LONGEST_NAME - 40].strip('. ')}~{blake2b(key.encode(), digest_size=16).hexdigest()}"
        return self._folder / name

    def _save(self, key: str, version: int, text: bytes) -> None:
        place = self._place(key)
        place.mkdir(parents=True, exist_ok=True)
        earlier = _versions(place)
        if earlier and version <= earlier[-1]:
            raise SnapshotConflict(key, version, earlier[-1])
        try:
            _write_new(place, _name(version), text)
        except FileExistsError:
            raise SnapshotConflict(key, version, version) from None
        if not self._history:
            for old in earlier:
                (place / _name(old)).unlink(missing_ok=True)

    def _load(self, key: str, version: int | None) -> Snapshot | None:
        place = self._place(key)
        while versions := [version] if version is not None else _versions(place)[-1:]:
            file = place / _name(versions[0])
            try:
                snapshot = read(key, str(file), file.read_bytes())
            except FileNotFoundError:
                if version is not None:
                    return None
                continue  # a newer one has just taken its place
            if snapshot.version != versions[0]:
                raise SnapshotBroken(key, str(file), f"it holds version {snapshot.version}")
            return snapshot
        return None


def _name(version: int) -> str:
    return f"{version:08}.json"


def _versions(place: Path) -> list[int]:
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for name in names if (found := _FILE.fullmatch(name)))


def _write_new(place: Path, name: str, text: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=place, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, place / name)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    _force_names(place)


def _force_names(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
