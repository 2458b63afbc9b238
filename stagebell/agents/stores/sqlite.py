"""Snapshots in one SQLite file: many conversations, one file to copy."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from stagebell.agents.stores.encoding import read, used, write
from stagebell.agents.stores.port import Snapshot
from stagebell.errors import SnapshotConflict

T = TypeVar("T")

_PATIENCE: Final = 10.0  # seconds that one process waits for another's save
_PAUSE: Final = 0.01
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS snapshots (
    key TEXT NOT NULL, version INTEGER NOT NULL, snapshot BLOB NOT NULL, PRIMARY KEY (key, version)
) WITHOUT ROWID
"""


class SqliteStore:
    """Keeps all snapshots in one file.

    Args:
        file: where; made when it is first used. Several processes may share it.
        history: keep every snapshot, not the newest alone.
    """

    def __init__(self, file: str | os.PathLike[str], *, history: bool = False) -> None:
        self._file = os.fspath(file)
        self._history = history
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def save(self, key: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; see `RunStore.save`."""
        text = write(snapshot)
        await self._run(key, lambda connection: self._save(connection, key, snapshot.version, text))

    async def load(self, key: str, version: int | None = None) -> Snapshot | None:
        """The newest snapshot, or that of a version; see `RunStore.load`."""
        return await self._run(key, lambda connection: self._load(connection, key, version))

    async def versions(self, key: str) -> list[int]:
        """The versions that can be loaded, in order."""
        return await self._run(key, lambda connection: _versions(connection, key))

    async def close(self) -> None:
        """Close the file."""
        thread, connection = self._thread, self._connection
        self._thread = self._connection = None
        if thread is not None:
            if connection is not None:
                await asyncio.get_running_loop().run_in_executor(thread, connection.close)
            thread.shutdown(wait=False)

    async def _run(self, key: str, work: Callable[[sqlite3.Connection], T]) -> T:
        # One thread: a connection belongs to the thread that made it, and one process saves one after the other.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "stagebell-sqlite")
        with used(key, self._file):
            return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._open()))

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self._file, timeout=_PATIENCE, isolation_level=None)
            _keep_a_log(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_TABLE)
            self._connection = connection
        return self._connection

    def _save(self, connection: sqlite3.Connection, key: str, version: int, text: bytes) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            newest = max(_versions(connection, key), default=0)
            if version <= newest:
                raise SnapshotConflict(key, version, newest)
            if not self._history:
                connection.execute("DELETE FROM snapshots WHERE key = ?", (key,))
            connection.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (key, version, text))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite ends it by itself when the disk is full
                connection.execute("ROLLBACK")
            raise

    def _load(self, connection: sqlite3.Connection, key: str, version: int | None) -> Snapshot | None:
        where = "key = ?" if version is None else "key = ? AND version = ?"
        values = (key,) if version is None else (key, version)
        query = f"SELECT snapshot FROM snapshots WHERE {where} ORDER BY version DESC LIMIT 1"
        row: tuple[bytes] | None = connection.execute(query, values).fetchone()
        return None if row is None else read(key, self._file, row[0])


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Let the file have a write-ahead log, and wait for others who do that at the same moment: SQLite does not."""
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                raise
        time.sleep(_PAUSE)


def _versions(connection: sqlite3.Connection, key: str) -> list[int]:
    query = "SELECT version FROM snapshots WHERE key = ? ORDER BY version"
    return [version for (version,) in connection.execute(query, (key,))]
