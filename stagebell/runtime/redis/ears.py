"""Listen for what others tell this process: its bell, and the replies to its calls.

One blocking read, on a connection of its own, over at most three streams. The bell is a hint that may be lost, since
the inboxes and journals are the truth; replies are read to the end. What was read is trimmed away by and by.
A key of another type, which only a foreign hand can have written, is left out until it is a stream again.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future, Task
from collections.abc import Callable, Mapping
from typing import Any

from stagebell.errors import ServerRefused, ServerUnavailable
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.link import Link

logger = logging.getLogger("stagebell")

Fields = Mapping[bytes, bytes]
Hear = Callable[[str, Fields], None]

_BLOCK_MS = 1000
_COUNT = 64  # entries, each of up to `joint.MOST` messages
_TRIM_BYTES = 256 * 1024
_ENTRY_BYTES = 256
_LOOK_AGAIN = 3.0  # seconds between two looks whether a spoilt stream can be read again


class Stream:
    """One stream to read: from its beginning, each entry to `hear`; `trim` says whether what was read is removed."""

    def __init__(self, key: str, hear: Hear, *, trim: bool, position: str = "0-0") -> None:
        self.key = key
        self.hear = hear
        self.trim = trim
        self.position = position
        self.untrimmed = 0
        self.spoilt = False  # its key has another type


def told(flat: list[bytes]) -> list[dict[bytes, bytes]]:
    """The messages in an entry, from its names and values in turn: each begins with a field k."""
    names, values = flat[::2], flat[1::2]
    starts = [place for place, name in enumerate(names) if name == b"k"]
    if len(starts) < 2:
        return [dict(zip(names, values, strict=True))]
    ends = [*starts[1:], len(names)]
    return [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in zip(starts, ends, strict=True)]


class Ears:
    """Reads streams until closed."""

    def __init__(self, url: str, link: Link, name: str) -> None:
        self._url = url
        self._link = link
        self._name = name
        self._streams: dict[bytes, Stream] = {}
        self._task: Task[None] | None = None
        self._connection: Connection | None = None
        self._broken: Future[None] | None = None
        self._listening = asyncio.Event()
        self._held = False

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

    def hold(self) -> None:
        """Hear nothing until `go_on`."""
        self._held = True
        if self._connection is not None:
            self._connection.hold()

    def go_on(self) -> None:
        """End a `hold`: hear what has come meanwhile."""
        self._held = False
        if self._connection is not None:
            self._connection.go_on()

    def break_off(self) -> None:
        """Listen no more, at once."""
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._connection = await Connection.open_with_retry(self._url, deadline=3600.0, name=self._name)
                if self._held:
                    self._connection.hold()
                self._reset()
                self._broken = loop.create_future()
                self._read()
                self._listening.set()
                await self._until_broken(self._broken)
            except (ServerUnavailable, ServerRefused) as error:
                logger.debug("listening is interrupted: %s", error)
                await self._pause()

    async def _until_broken(self, broken: Future[None]) -> None:
        """Wait for the end of the connection, and look after streams that are spoilt."""
        while not broken.done():
            spoilt = any(stream.spoilt for stream in self._streams.values())
            await asyncio.wait([broken], timeout=_LOOK_AGAIN if spoilt else None)
            if not broken.done():
                await self._examine()
        await broken

    async def _pause(self) -> None:
        if self._connection is not None:
            self._connection.close()  # after a refusal it is still open
        hopeless = self._streams and all(stream.spoilt for stream in self._streams.values())
        await asyncio.sleep(_LOOK_AGAIN if hopeless else 0.05)
        try:
            await self._examine()
        except (ServerUnavailable, ServerRefused) as error:
            logger.debug("the streams cannot be examined: %s", error)

    async def _examine(self) -> None:
        """Find out which keys are streams, or may become some."""
        for stream in list(self._streams.values()):
            kind: bytes | str = await self._link.ask("TYPE", stream.key)
            spoilt = kind not in (b"stream", b"none", "stream", "none")
            if spoilt and not stream.spoilt:
                logger.error("%s is no stream: it is not listened to until somebody deletes it", stream.key)
            elif stream.spoilt and not spoilt:
                logger.warning("%s can be listened to again", stream.key)
                stream.position = "0-0" if stream.trim else stream.position
            stream.spoilt = spoilt

    def _reset(self) -> None:
        # A server that lost writes may give out entry ids below the last one read; what was read is trimmed anyway.
        for stream in self._streams.values():
            if stream.trim:
                stream.position = "0-0"

    def _read(self) -> None:
        streams = [stream for stream in self._streams.values() if not stream.spoilt]
        if self._connection is None:
            return
        if not streams:  # XREAD takes no empty list
            self.set_exception(ServerRefused("every stream to listen to has another type"))
            return
        self._connection.execute_blocking_into(
            self,
            *("XREAD", "COUNT", _COUNT, "BLOCK", _BLOCK_MS, "STREAMS"),
            *(stream.key for stream in streams),
            *(stream.position for stream in streams),
            patience=_BLOCK_MS / 1000,
        )

    # -- what the connection tells (connection.Sink): no task stands between the server's answer and those it is for

    def done(self) -> bool:
        """Answers are wanted as long as this listens."""
        return self._task is None or self._task.done()

    def set_exception(self, error: BaseException, /) -> None:
        """The connection broke, or the server refused the read."""
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)
            self._broken.exception()  # no warning when nobody listens any more

    def set_result(self, found: list[Any] | None, /) -> None:
        """Entries were added, or a second has passed."""
        heard = [(stream, entries) for key, entries in found or () if (stream := self._streams.get(key)) is not None]
        for stream, entries in heard:
            stream.position = entries[-1][0].decode()
        self._read()
        for stream, entries in heard:
            self._hear_all(stream, entries)
        for stream in self._streams.values():
            if stream.untrimmed and (not found or stream.untrimmed > _TRIM_BYTES):
                self._trim(stream)

    def _hear_all(self, stream: Stream, entries: list[Any]) -> None:
        for id, flat in entries:
            for fields in told(flat):
                try:
                    stream.hear(id.decode(), fields)
                except Exception:  # one message that cannot be understood must not make this process deaf
                    logger.exception("an entry of %s could not be understood", stream.key)
            if stream.trim:
                stream.untrimmed += _ENTRY_BYTES + sum(map(len, flat))

    def _trim(self, stream: Stream) -> None:
        """Remove what was read: when it has become much, or when there is time."""
        stream.untrimmed = 0
        time, _, number = stream.position.partition("-")
        self._link.tell("XTRIM", stream.key, "MINID", f"{time}-{int(number) + 1}")
