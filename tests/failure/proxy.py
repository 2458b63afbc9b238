"""A bad line to the server: it drops connections, delays, and swallows replies to what the server did."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from asyncio import StreamReader, StreamWriter, Task
from pathlib import Path
from types import TracebackType
from typing import Self


class _Line:
    """One connection through the proxy. `deaf`: replies do not come through any more."""

    def __init__(self, down: StreamWriter, up: StreamWriter) -> None:
        self.down = down
        self.up = up
        self.deaf = False
        self.delay = 0.0

    def cut(self) -> None:
        """Both ends see a reset."""
        for writer in (self.down, self.up):
            writer.transport.abort()


class BadLine:
    """A proxy on a port of its own, in front of a server on 127.0.0.1.

    Args:
        port: the server's.
        seed: decides what happens when.
        tls: a folder with server.pem and server.key: clients speak TLS with it.
    """

    def __init__(self, port: int, seed: int = 0, tls: Path | None = None) -> None:
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls / "server.pem", tls / "server.key")
        self.lines: set[_Line] = set()
        self.cuts = 0
        self._upstream = port
        self._chance = random.Random(seed)
        self._tasks: set[Task[None]] = set()
        self._weather: Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calm()
        self._server.close()
        for line in list(self.lines):
            line.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}"

    # -- weather

    def storm(self, every: float = 0.15) -> None:
        """From now on something happens to one of the connections, on average `every` seconds."""
        self._weather = asyncio.get_running_loop().create_task(self._storm(every))

    def calm(self) -> None:
        """Nothing happens any more."""
        if self._weather is not None:
            self._weather.cancel()

    def swallow(self) -> None:
        """No reply comes through on the connections there are now; new ones work."""
        for line in self.lines:
            line.deaf = True

    def cut(self) -> None:
        """Drop all connections there are now."""
        for line in list(self.lines):
            line.cut()

    async def _storm(self, every: float) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0, 2 * every))
            if self.lines:
                await self._happen(self._chance.choice(list(self.lines)))

    async def _happen(self, line: _Line) -> None:
        match self._chance.choice(("cut", "swallow", "swallow", "delay")):
            case "cut":
                self.cuts += 1
                line.cut()
            case "swallow":  # the server does what it is told for a while, and nobody hears of it
                self.cuts += 1
                line.deaf = True
                await asyncio.sleep(self._chance.uniform(0, 0.05))
                line.cut()
            case _:
                line.delay = self._chance.uniform(0.001, 0.03)

    def lead_to(self, port: int) -> None:
        """From now on it leads to another server: connections there are now break, new ones go there."""
        self._upstream = port
        self.cut()

    # -- connections

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        line = _Line(writer, up_writer)
        self.lines.add(line)
        for task in (
            self._pass_on(line, reader, up_writer, False),
            self._pass_on(line, up_reader, writer, True),
        ):
            running = asyncio.get_running_loop().create_task(task)
            self._tasks.add(running)
            running.add_done_callback(self._tasks.discard)

    async def _pass_on(self, line: _Line, reader: StreamReader, writer: StreamWriter, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if replies and line.delay:
                    await asyncio.sleep(line.delay)
                if not (replies and line.deaf):
                    writer.write(data)
                    await writer.drain()
        line.cut()
        self.lines.discard(line)
