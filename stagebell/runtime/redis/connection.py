"""One connection to the server that pipelines by itself.

    execute(…) ──append──▶ out ──flush, in each turn of the loop──▶ socket ──▶ server
        │                                                                          │
      Future ◀──── pending (oldest first) ◀──── hiredis.Reader ◀── data_received ◀─┘

What holds at all times:
- Replies come in the order of the commands, so the oldest pending future takes the next reply.
- A future ends in the reply (bytes, int, list or None; text stays bytes), in `ServerRefused` when the
  server answered with an error, or in `ServerUnavailable` when the connection ended first.
- Nothing is sent twice: a command whose reply was lost may have run. The one exception is an EVALSHA the
  server did not know (NOSCRIPT, so it did not run), which `on_noscript` may exchange for an EVAL.
- When replies stay out for `timeout` seconds the connection is closed. Time is counted in steps of one
  timer, so that a loop that was blocked for long does not take its own absence for the server's.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import hiredis

from stagebell.errors import ServerRefused, ServerUnavailable
from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.joint import Arg, Joint, Parse, Request, Sink, settle
from stagebell.runtime.redis.resolving import connect_to_any

Pending = tuple[Sink, Parse | None, Sequence[Arg]]

SinkT = TypeVar("SinkT", bound=Sink)

AT_ONCE = 16
"""Commands that leave together; no more wait for the end of a turn of the loop, so that the server starts on them."""
HIGH_WATER = 8 * 1024 * 1024
"""Bytes that may wait for the socket before `drain` waits."""
OPEN_SECONDS = 5.0
"""How long the opening of a connection may take."""
STEPS = 5
"""Steps of the reply timer in one timeout."""
NOT_READY = frozenset({"LOADING", "MASTERDOWN", "BUSY"})
"""Error codes of a server that will be ready later."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two attempts to open a connection."""
MORE = object()

# The published stub of hiredis leaves the type of this function open.
_pack: Callable[[tuple[Arg, ...]], bytes] = vars(hiredis)["pack_command"]


class Connection(asyncio.Protocol):
    """A connection to one server; made by `open` or `open_with_retry`.

    `on_lost` is called once, with the error that all pending futures get, when the connection ends by
    itself (not by `close`). `on_noscript` gets the arguments of an EVALSHA whose script the server does
    not know and returns the command to send instead.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self.on_lost: Callable[[ServerUnavailable], None] | None = None
        self.on_noscript: Callable[[tuple[Arg, ...]], tuple[Arg, ...]] | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=ServerRefused, notEnoughData=MORE)
        self._out: list[bytes | Joint] = []
        self._pending: deque[Pending] = deque()
        self._patience: dict[Sink, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._oldest: Sink | None = None
        self._steps = 0
        self._lost: ServerUnavailable | None = None
        self._writable: asyncio.Future[None] | None = None
        self._held = False

    @classmethod
    async def open(cls, url: str, *, timeout: float = OPEN_SECONDS, name: str = "") -> Connection:
        """Connect, log in, choose the database and see that the server answers.

        Arguments:
            url: redis://, rediss:// or unix://, with user, password and database where needed.
            timeout: seconds for all of this, and later for each reply.
            name: what CLIENT LIST shows for this connection.

        Raises:
            ServerUnavailable: the server cannot be reached, does not answer in time or is still loading.
            ServerRefused: the server refused the credentials or the database.
        """
        address = Address.parse(url)
        try:
            async with asyncio.timeout(timeout):
                connection = await cls._connect(address, timeout)
                try:
                    await connection._introduce(name)
                except BaseException:
                    connection.close()
                    raise
        except ServerUnavailable:
            raise
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {timeout:g} s"
            raise ServerUnavailable(f"cannot reach the server at {address}: {why}") from None
        return connection

    @classmethod
    async def open_with_retry(cls, url: str, *, deadline: float, timeout: float = 5.0, name: str = "") -> Connection:
        """Like `open`, again and again with growing pauses until `deadline` seconds have passed.

        Raises:
            ServerUnavailable: the last failure, when the time is up.
            ServerRefused: at once; wrong credentials do not become right.
        """
        clock = asyncio.get_running_loop().time
        end, pause = clock() + deadline, FIRST_PAUSE
        while True:
            try:
                return await cls.open(url, timeout=min(timeout, max(end - clock(), FIRST_PAUSE)), name=name)
            except ServerUnavailable:
                wait = pause * random.uniform(0.5, 1.0)
                if clock() + wait >= end:
                    raise
                await asyncio.sleep(wait)
                pause = min(pause * 2, LONGEST_PAUSE)

    @classmethod
    async def _connect(cls, address: Address, timeout: float) -> Connection:
        loop = asyncio.get_running_loop()

        def protocol() -> Connection:
            return cls(address, timeout)

        if address.path:
            _, connection = await loop.create_unix_connection(protocol, address.path)
            return connection
        return await connect_to_any(protocol, address.host, address.port, address.ssl_context())

    async def _introduce(self, name: str) -> None:
        commands: list[tuple[Arg, ...]] = []
        if self.address.password is not None:
            user = (self.address.username,) if self.address.username else ()
            commands.append(("AUTH", *user, self.address.password))
        if self.address.db:
            commands.append(("SELECT", self.address.db))
        if name:
            commands.append(("CLIENT", "SETNAME", name))
        commands.append(("PING",))
        answers = await asyncio.gather(*(self.execute(*c) for c in commands), return_exceptions=True)
        for command, answer in zip(commands, answers, strict=True):
            self._judge(command, answer)

    def _judge(self, command: tuple[Arg, ...], answer: Any) -> None:
        if isinstance(answer, ServerRefused):
            text = self.address.conceal(str(answer))
            if answer.code in NOT_READY:
                raise ServerUnavailable(f"the server at {self.address} is not ready: {text}")
            # A user without the right to PING or to name connections is logged in all the same.
            if answer.code != "NOPERM" or command[0] in ("AUTH", "SELECT"):
                raise ServerRefused(f"{text} (from {self.address})", code=answer.code) from None
        elif isinstance(answer, BaseException):
            raise answer

    # ---- commands

    def execute(self, *args: Arg) -> asyncio.Future[Any]:
        """Send a command; it leaves with all others of this turn of the loop.

        Returns:
            A future of the reply. On a connection that has ended it holds ServerUnavailable already.
        """
        return self._submit(self._loop.create_future(), None, args)

    def execute_parsed(self, parse: Parse, *args: Arg) -> asyncio.Future[Any]:
        """Send a command whose reply goes through `parse` before it reaches the future."""
        return self._submit(self._loop.create_future(), parse, args)

    def execute_blocking(self, *args: Arg, patience: float) -> asyncio.Future[Any]:
        """Send a command that the server may answer as late as `patience` seconds (0: at any time).

        Later commands of this connection wait behind it, so give blocking commands one of their own.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._lost is None:
            self._patience[future] = patience or math.inf
            future.add_done_callback(self._patience.pop)
        return self._submit(future, None, args)

    def execute_into(self, sink: Sink, parse: Parse, *args: Arg) -> None:
        """Send a command whose reply goes through `parse` and straight into `sink`, in the step that reads it."""
        self._submit(sink, parse, args)

    def execute_blocking_into(self, sink: Sink, *args: Arg, patience: float) -> None:
        """As `execute_blocking`, into a sink that takes one reply after the other."""
        self._patience[sink] = patience or math.inf
        self._submit(sink, None, args)

    def execute_jointly(self, sha: str, request: Request) -> None:
        """Let a script run, together with the requests to it that came right before (see `joint`)."""
        if self._lost is not None:
            self._fail(request.sink)
            return
        last = self._out[-1] if self._out else None
        if type(last) is not Joint or not last.takes(sha, request.weight):
            last = Joint(sha)
            self._append(last, last, None, last.command)
        if last.join(request):
            self._flush()

    def _submit(self, future: SinkT, parse: Parse | None, args: tuple[Arg, ...]) -> SinkT:
        if self._lost is not None:
            self._fail(future)
            return future
        self._append(_pack(args), future, parse, args)
        if len(self._out) >= AT_ONCE:
            self._flush()
        return future

    def _append(self, command: bytes | Joint, sink: Sink, parse: Parse | None, args: Sequence[Arg]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(command)
        self._pending.append((sink, parse, args))

    def _flush(self) -> None:
        if self._transport is None or self._lost is not None or not self._out or self._held:
            return
        self._transport.write(
            b"".join([each if isinstance(each, bytes) else _pack(each.close()) for each in self._out])
        )
        self._out.clear()
        if self._timer is None:
            self._watch()

    def hold(self) -> None:
        """Neither read nor write until `go_on`; commands wait here meanwhile, and no reply is missed."""
        self._held = True
        if self._transport is not None and self._lost is None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """End a `hold`."""
        self._held = False
        if self._transport is not None and self._lost is None:
            self._transport.resume_reading()
            self._flush()

    async def drain(self) -> None:
        """Wait while more than 8 MiB wait for the socket.

        Raises:
            ServerUnavailable: the connection ended.
        """
        if self._writable is not None:
            await asyncio.shield(self._writable)
        if self._lost is not None:
            raise ServerUnavailable(str(self._lost))

    # ---- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Give each reply to the oldest pending future."""
        reader, pending = self._reader, self._pending
        try:
            reader.feed(data)
            gets = reader.gets
            while (reply := gets()) is not MORE:
                future, parse, args = pending.popleft()
                if type(reply) is ServerRefused:
                    self._refused(future, parse, args, reply)
                elif not future.done():  # a caller that gave up has cancelled it
                    if parse is None:
                        future.set_result(reply)
                    else:
                        settle(future, parse, reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self._end(f"the server at {self.address} sent what no command asked for: {error}")

    def _refused(self, future: Sink, parse: Parse | None, args: Sequence[Arg], error: ServerRefused) -> None:
        if future.done():
            return
        if error.code == "NOSCRIPT" and self.on_noscript is not None:
            self._submit(future, parse, self.on_noscript(tuple(args)))
        else:
            future.set_exception(error)

    def pause_writing(self) -> None:
        """Let `drain` wait."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let `drain` pass."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is pending."""
        why = f": {exc}" if exc is not None and str(exc) else ""
        self._end(f"the server at {self.address} closed the connection{why}")

    # ---- the end

    def _watch(self) -> None:
        """One step of the reply timer; it sleeps while nothing is pending."""
        self._timer = None
        if not self._pending or self._lost is not None:
            self._oldest = None
            return
        oldest = self._pending[0][0]
        self._steps = self._steps + 1 if oldest is self._oldest and not self._held else 0
        self._oldest = oldest
        patience = self.timeout + self._patience.get(oldest, 0.0)
        if self._steps * self.timeout >= patience * STEPS:
            self._end(f"the server at {self.address} has not answered for {patience:g} s")
        else:
            self._timer = self._loop.call_later(self.timeout / STEPS, self._watch)

    def _end(self, reason: str) -> None:
        if self._lost is not None:
            return
        self._lost = ServerUnavailable(reason)
        pending = [future for future, _, _ in self._pending]
        self._pending.clear()
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
        for future in pending:
            self._fail(future)
        self.resume_writing()
        if self._transport is not None:
            self._transport.abort()
        if self.on_lost is not None:
            self.on_lost(self._lost)

    def _fail(self, future: Sink) -> None:
        # Each gets an error of its own: a shared one would collect the tracebacks of all waiters.
        if not future.done():
            future.set_exception(ServerUnavailable(str(self._lost)))
            if isinstance(future, asyncio.Future):
                future.exception()  # `on_lost` has told it once; no warning for each future nobody awaits

    @property
    def closed(self) -> bool:
        """True once the connection has ended."""
        return self._lost is not None

    def close(self) -> None:
        """End the connection; what is pending gets ServerUnavailable, `on_lost` is not called."""
        self.on_lost = None
        self._end(f"the connection to {self.address} was closed")
