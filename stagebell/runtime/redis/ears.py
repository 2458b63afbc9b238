"""Listen for what others tell this process: its bell, and the replies to its calls.

One blocking read, on a connection of its own, over at most three streams. The bell is a hint that may be lost, since
the inboxes and journals are the truth; replies are read to the end. What was read is trimmed away by and by.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from collections.abc import Callable, Mapping
from typing import Any

from stagebell.errors import ServerRefused, ServerUnavailable
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.link import Link

logger = logging.getLogger("stagebell")

Fields = Mapping[bytes, bytes]
Hear = Callable[[str, Fields], None]

_BLOCK_MS = 1000
_COUNT = 512
_TRIM_BYTES = 256 * 1024
_ENTRY_BYTES = 256


class Stream:
    """One stream to read: from its beginning, each entry to `hear`; `trim` says whether what was read is removed."""

    def __init__(self, key: str, hear: Hear, *, trim: bool, position: str = "0-0") -> None:
        self.key = key
        self.hear = hear
        self.trim = trim
        self.position = position
        self.untrimmed = 0


class Ears:
    """Reads streams until closed."""

    def __init__(self, url: str, link: Link, name: str) -> None:
        self._url = url
        self._link = link
        self._name = name
        self._streams: dict[bytes, Stream] = {}
        self._task: Task[None] | None = None
        self._connection: Connection | None = None
        self._listening = asyncio.Event()

    def add(self, stream: Stream) -> None:
        """Listen to one more stream, from the next read on (within a second)."""
        self._streams[stream.key.encode()] = stream

    def remove(self, key: str) -> None:
        """Listen to a stream no more."""
        self._streams.pop(key.encode(), None)

    async def open(self) -> None:
        """Start to listen; returns once the first read is under way."""
        self._task = asyncio.get_running_loop().create_task(self._listen())
        await self._listening.wait()

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    async def _listen(self) -> None:
        while True:
            try:
                self._connection = await Connection.open_with_retry(self._url, deadline=3600.0, name=self._name)
                self._reset()
                while True:
                    await self._read(self._connection)
            except (ServerUnavailable, ServerRefused) as error:
                logger.debug("listening is interrupted: %s", error)
                await asyncio.sleep(0.05)

    def _reset(self) -> None:
        # A server that lost writes may give out entry ids below the last one read; what was read is trimmed anyway.
        for stream in self._streams.values():
            if stream.trim:
                stream.position = "0-0"

    async def _read(self, connection: Connection) -> None:
        streams = list(self._streams.values())
        positions = [stream.position for stream in streams]
        answer = connection.execute_blocking(
            *("XREAD", "COUNT", _COUNT, "BLOCK", _BLOCK_MS, "STREAMS"),
            *(stream.key for stream in streams),
            *positions,
            patience=_BLOCK_MS / 1000,
        )
        self._listening.set()
        found = await answer or ()
        for key, entries in found:
            stream = self._streams.get(key)
            if stream is not None:
                self._hear_all(stream, entries)
        for stream in streams:
            if stream.untrimmed and (not found or stream.untrimmed > _TRIM_BYTES):
                self._trim(stream)

    def _hear_all(self, stream: Stream, entries: list[Any]) -> None:
        for id, flat in entries:
            try:
                stream.hear(id.decode(), dict(zip(flat[::2], flat[1::2], strict=True)))
            except Exception:  # one entry that cannot be understood must not make this process deaf
                logger.exception("an entry of %s could not be understood", stream.key)
            stream.untrimmed += _ENTRY_BYTES + len(flat[-1]) if stream.trim else 0
        last: bytes = entries[-1][0]
        stream.position = last.decode()

    def _trim(self, stream: Stream) -> None:
        """Remove what was read: when it has become much, or when there is time."""
        stream.untrimmed = 0
        time, _, number = stream.position.partition("-")
        self._link.tell("XTRIM", stream.key, "MINID", f"{time}-{int(number) + 1}")
