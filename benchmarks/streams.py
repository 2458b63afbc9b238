"""Bare streams: the two connections that the floors across processes use.

Both have one method, `execute`, and send what was asked for in one turn of the event loop as one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

import hiredis
from redis import RedisError
from redis.asyncio import Redis

Argument = str | bytes | int


class Link(Protocol):
    """A connection to the server."""

    def execute(self, *command: Argument) -> asyncio.Future[Any]: ...

    async def close(self) -> None: ...


class ThinLink(asyncio.Protocol):
    """An asyncio connection over the hiredis parser, and nothing else."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._outgoing: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, port: int) -> ThinLink:
        _, link = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(exc or ConnectionResetError("the connection was closed"))

    def execute(self, *command: Any) -> asyncio.Future[Any]:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(hiredis.pack_command(command))
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            future = self._waiting.popleft()
            if future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    def _flush(self) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    async def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class RedisPyLink:
    """redis-py; commands that meet while a round trip is under way go out as one pipeline."""

    def __init__(self, port: int) -> None:
        self._redis = Redis(host="127.0.0.1", port=port)
        self._outgoing: list[tuple[tuple[Argument, ...], asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None

    def execute(self, *command: Argument) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._outgoing.append((command, future))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        return future

    async def _send(self) -> None:
        while self._outgoing:
            batch, self._outgoing = self._outgoing, []
            try:
                replies = await self._replies([command for command, _ in batch])
            except RedisError as error:
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (_, future), reply in zip(batch, replies, strict=True):
                future.set_result(reply)
        self._sender = None

    async def _replies(self, commands: list[tuple[Argument, ...]]) -> list[Any]:
        client: Any = self._redis
        if len(commands) == 1:
            return [await client.execute_command(*commands[0])]
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute()
        return replies

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
        await self._redis.aclose()


async def connect(kind: str, port: int) -> Link:
    """A connection of the kind `thin` or `redis-py`."""
    return await ThinLink.connect(port) if kind == "thin" else RedisPyLink(port)


async def read(link: Link, stream: str, last: bytes) -> list[tuple[bytes, list[bytes]]]:
    """The entries after `last`; waits up to a second for one."""
    reply = await link.execute("XREAD", "COUNT", 1000, "BLOCK", 1000, "STREAMS", stream, last)
    if not reply:
        return []
    entries = reply[0][1] if isinstance(reply, list) else next(iter(reply.values()))[0]
    return list(entries)


def field(entry: tuple[bytes, Any]) -> bytes:
    """The value of an entry's only field, whichever way the client gives it."""
    fields = entry[1]
    value: bytes = next(iter(fields.values())) if isinstance(fields, dict) else fields[1]
    return value
