"""Snapshots as JSON text."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from pydantic import JsonValue

from stagebell.agents.stores.port import Snapshot
from stagebell.errors import SnapshotBroken, StoreUnusable


def write(snapshot: Snapshot) -> bytes:
    """The text of a snapshot, in UTF-8. Raises ValueError when it is not JSON, or its version is none."""
    if snapshot.version < 1:
        raise ValueError(f"the version of a snapshot is a whole number from 1 on, got {snapshot.version!r}")
    try:
        fields = {"version": snapshot.version, "state": dict(snapshot.state)}
        return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise ValueError(f"the state is not JSON: {error}") from error


def read(key: str, place: str, text: bytes) -> Snapshot:
    """The snapshot in a text; `place` says where it was found.

    Raises:
        SnapshotBroken: it is none.
    """
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotBroken(key, place, str(error)) from error
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    version, state = fields.get("version"), fields.get("state")
    if type(version) is not int or not isinstance(state, dict):
        raise SnapshotBroken(key, place, "a version and a state are missing")
    return Snapshot(version, cast("Mapping[str, JsonValue]", state))


@contextmanager
def used(key: str, place: str) -> Generator[None]:
    """Within it, the place of a store is used for a conversation.

    Raises:
        StoreUnusable: it cannot be.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(key, place, f"{type(error).__name__}: {error}") from error
