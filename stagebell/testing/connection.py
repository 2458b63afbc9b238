"""A bad line between a runtime and its server: it drops connections, delays, and loses replies to what was done."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import shutil
import ssl
import tempfile
from asyncio import Server, StreamReader, StreamWriter, Task
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

_SCHEMES = ("redis", "rediss", "unix")
_CHUNK = 65536


class FaultyConnection:
    """A proxy in front of a server. Runtimes and publishers that use its `url` have a line that can be made bad.

        async with FaultyConnection(url) as line, RedisRuntime(line.url) as runtime:
            line.storm(seed=7)
            ...
            line.heal()

    It listens on 127.0.0.1, or on a unix socket when the server does, and runs in the event loop of the test. Bytes
    pass as they are: credentials, database and options of the URL stay, and so does its TLS (whose certificate must
    then be good for 127.0.0.1, or the URL say `ssl_check_hostname=false`).

    Args:
        url: redis://, rediss:// or unix:// URL of the server.
        tls: a folder with server.pem and server.key: clients speak TLS with the proxy, which speaks none with the
            server.

    Raises:
        ValueError: the URL is none of these.
    """

    def __init__(self, url: str, *, tls: Path | None = None) -> None:
        self._target = _split(url)
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls / "server.pem", tls / "server.key")
        self.faults = 0
        self._url = ""
        self._pairs: set[_Pair] = set()
        self._delay = 0.0
        self._server: Server | None = None
        self._folder: str | None = None
        self._tasks: set[Task[None]] = set()
        self._weather: Task[None] | None = None

    async def __aenter__(self) -> Self:
        parts = self._target
        user, at, _ = parts.netloc.rpartition("@")
        if parts.scheme == "unix":
            self._folder = tempfile.mkdtemp(prefix="stagebell-line-")
            path = f"{self._folder}/s.sock"
            self._server = await asyncio.start_unix_server(self._accept, path)
            self._url = f"unix://{parts.netloc}{path}{'?' if parts.query else ''}{parts.query}"
        else:
            self._server = server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
            port: int = server.sockets[0].getsockname()[1]
            scheme = "rediss" if self._tls is not None else parts.scheme
            self._url = parts._replace(scheme=scheme, netloc=f"{user}{at}127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
        if self._server is not None:
            self._server.close()
        for pair in list(self._pairs):
            pair.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where clients connect to, from `async with` on."""
        if not self._url:
            raise RuntimeError("the line is not open: use `async with FaultyConnection(url) as line`")
        return self._url

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        return len(self._pairs)

    # -- faults

    def cut(self) -> None:
        """Drop all connections there are now; both ends see a reset. New ones work."""
        self.faults += len(self._pairs)
        for pair in list(self._pairs):
            pair.cut()

    def lose_replies(self) -> None:
        """No reply comes through any more on the connections there are now, though the server does as it is told.

        New connections work. A client notices when its patience with the server is over, or at `cut` and `heal`.
        """
        self.faults += len(self._pairs)
        for pair in self._pairs:
            pair.deaf = True

    def delay(self, seconds: float) -> None:
        """Let each piece of a reply come so many seconds later, on all connections, until `heal` or `delay(0)`."""
        self._delay = seconds
        for pair in self._pairs:
            pair.delay = seconds

    def storm(self, *, seed: int = 0, every: float = 0.15) -> None:
        """From now until `heal`, something happens to one of the connections again and again.

        A connection is cut, or loses its replies and is cut a little later, or becomes slow.

        Args:
            seed: decides what happens; the same seed gives the same choices.
            every: seconds between two faults, on average.
        """
        self._end_storm()
        self._weather = asyncio.get_running_loop().create_task(self._storm(random.Random(seed), every))

    def heal(self) -> None:
        """From now on the line is good; a connection that has lost replies is cut, since it cannot be mended."""
        self._end_storm()
        self.delay(0.0)
        for pair in list(self._pairs):
            if pair.deaf:
                pair.cut()

    def lead_to(self, url: str) -> None:
        """From now on it leads to another server: connections there are now are cut, new ones go there."""
        self._target = _split(url)
        self.cut()

    def _end_storm(self) -> None:
        if self._weather is not None:
            self._weather.cancel()
            self._weather = None

    async def _storm(self, chance: random.Random, every: float) -> None:
        while True:
            await asyncio.sleep(chance.uniform(0, 2 * every))
            what, where, how_long = chance.choice(("cut", "lose", "lose", "delay")), chance.random(), chance.random()
            if self._pairs:
                pairs = sorted(self._pairs, key=lambda pair: pair.number)
                await self._happen(what, pairs[int(where * len(pairs))], how_long)

    async def _happen(self, what: str, pair: _Pair, how_long: float) -> None:
        self.faults += 1
        if what == "delay":
            pair.delay = 0.001 + 0.03 * how_long
            return
        if what == "lose":  # the server does what it is told for a while, and nobody hears of it
            pair.deaf = True
            await asyncio.sleep(0.05 * how_long)
        pair.cut()

    # -- connections

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            up_reader, up_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, up_writer, self._delay)
        self._pairs.add(pair)
        self._spawn(self._pass_on(pair, reader, up_writer, replies=False))
        self._spawn(self._pass_on(pair, up_reader, writer, replies=True))

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        if self._target.scheme == "unix":
            return await asyncio.open_unix_connection(self._target.path)
        return await asyncio.open_connection(self._target.hostname or "localhost", self._target.port or 6379)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, pair: _Pair, reader: StreamReader, writer: StreamWriter, *, replies: bool) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_CHUNK):
                    if replies and pair.delay:
                        await asyncio.sleep(pair.delay)
                    if not (replies and pair.deaf):
                        writer.write(data)
                        await writer.drain()
        finally:
            pair.cut()
            self._pairs.discard(pair)


class _Pair:
    """One connection through the proxy. `deaf`: replies do not come through any more."""

    _numbers = itertools.count()

    def __init__(self, down: StreamWriter, up: StreamWriter, delay: float) -> None:
        self.number = next(self._numbers)
        self.deaf = False
        self.delay = delay
        self._ends = down, up

    def cut(self) -> None:
        """Both ends see a reset."""
        for writer in self._ends:
            writer.transport.abort()


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError("the server's URL must begin with redis://, rediss:// or unix://")
    return parts
