"""A worker process that dies, or stands still, at one boundary of its traffic with the server: at its N-th script.

Or at the N-th step of the handler of a till (`charging`): each time it begins to wait, and each time it goes on.

Only scripts that belong to turns are counted, so that N means the same moment in every run. Processes are
forked from one that has loaded everything already (multiprocessing's fork server): there is one for each boundary.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import select
import signal
import socket
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

import hiredis

from stagebell import RedisRuntime
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.lua_files import SCRIPTS
from tests.failure import charging
from tests.failure.setups import SETUPS

Moment = Literal["before", "after", "frozen", "step"]
KILLED = 9
PATIENCE = 5.0  # seconds for an answer of the server

_OF_TURNS = ("begin", "call", "record", "retry", "commit", "fail", "send", "fanout", "withdraw", "promote")
_SHAS = {SCRIPTS[name].sha.encode(): name for name in _OF_TURNS}

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


class Boundary:
    """Where this process dies: right before its N-th script is written, or when the server has carried it out.

    Or where it stands still (`frozen`): right before the script is written, which it does when it is woken.
    """

    def __init__(self, moment: Moment, number: int, tell: Callable[[str], None]) -> None:
        self.moment = moment
        self.left = number
        self._tell = tell

    def stand_still(self) -> None:
        """Until somebody sends SIGCONT."""
        self._tell("frozen")
        os.kill(os.getpid(), signal.SIGSTOP)

    def count_steps(self) -> None:
        """From now on die at the N-th step of a till's handler, and at no script."""

        def step() -> None:
            self.left -= 1
            if self.left == 0:
                os._exit(KILLED)

        charging.step = step

    def is_reached_by(self, command: list[Any]) -> bool:
        """Count this command; True for the one at which to die."""
        if self.moment != "step" and command[0] == b"EVALSHA" and command[1] in _SHAS:
            self.left -= 1
            return self.left == 0
        return False


class Guarded:
    """A transport whose process dies at a boundary; commands that leave in one write are written one by one."""

    def __init__(self, transport: asyncio.Transport, boundary: Boundary) -> None:
        self.unanswered = 0
        self._transport = transport
        self._boundary = boundary

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write all commands, or those up to the boundary."""
        commands = hiredis.Reader()
        commands.feed(data)
        while command := commands.gets():
            reached = self._boundary.is_reached_by(command)
            if reached and self._boundary.moment == "before":
                os._exit(KILLED)
            if reached and self._boundary.moment == "frozen":
                self._boundary.stand_still()
            self._transport.write(hiredis.pack_command(tuple(command)))
            self.unanswered += 1
            if reached and self._boundary.moment == "after":
                self._await_answers()
                os._exit(KILLED)

    def _await_answers(self) -> None:
        """Until the server has answered, without taking the answers: closing early could undo the write."""
        with socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno())) as line:
            answers = 0
            while answers < self.unanswered:
                assert select.select([line], [], [], PATIENCE)[0], "the server does not answer"
                reader = hiredis.Reader(notEnoughData=Ellipsis)
                reader.feed(line.recv(1 << 20, socket.MSG_PEEK))
                answers = sum(1 for _ in iter(reader.gets, Ellipsis))


def guard_connections(boundary: Boundary) -> None:
    """Let every connection that the runtime opens from now on lead through `Guarded`."""
    made, received = Connection.connection_made, Connection.data_received
    guarded: dict[Connection, tuple[Guarded, hiredis.Reader]] = {}

    def connection_made(self: Connection, transport: Any) -> None:
        guarded[self] = Guarded(transport, boundary), hiredis.Reader(notEnoughData=Ellipsis)
        made(self, guarded[self][0])

    def data_received(self: Connection, data: bytes) -> None:
        transport, reader = guarded[self]
        reader.feed(data)
        transport.unanswered -= sum(1 for _ in iter(reader.gets, Ellipsis))
        received(self, data)

    Connection.connection_made = connection_made
    Connection.data_received = data_received


class Victim:
    """A worker process that dies at its boundary, if it gets there."""

    def __init__(self, setup: str, moment: Moment, number: int, url: str, **options: Any) -> None:
        self._pipe, end = _forks.Pipe()
        self._said = Path(tempfile.mkstemp(prefix="victim-", suffix=".log")[1])
        arguments = end, str(self._said), setup, moment, number, url, options
        self.process = _forks.Process(target=_main, args=arguments, daemon=True)
        self.process.start()
        end.close()
        self.frozen = False

    async def ready(self) -> None:
        """Wait until it takes messages."""
        assert await asyncio.to_thread(self._pipe.poll, 20), "the victim is not ready"
        assert self._pipe.recv() == "ready"

    @property
    def stopped(self) -> bool:
        """True once it has ended or stands still."""
        if self.alive and not self.frozen and self._pipe.poll(0):
            with contextlib.suppress(EOFError):  # it is ending, and its end of the pipe went first
                self.frozen = self._pipe.recv() == "frozen"
        return self.frozen or not self.alive

    def thaw(self) -> None:
        """Let it go on."""
        if self.frozen:
            assert self.process.pid is not None
            os.kill(self.process.pid, signal.SIGCONT)

    @property
    def alive(self) -> bool:
        """True while the process has not ended."""
        return self.process.is_alive()

    async def stop(self) -> bool:
        """Let it end in order; returns whether it had died at its boundary."""
        self._pipe.close()
        # Not `join` in the thread: of two threads that ask for the exit code of a forked process at once, one reads it
        # and the other, which finds nothing any more, makes 255 of it.
        await asyncio.to_thread(wait, [self.process.sentinel], 10)
        code, said = self.process.exitcode, self._last_words()
        assert code in (0, KILLED), f"the victim ended with {code}, and said:\n{said}"
        return code == KILLED

    def _last_words(self) -> str:
        said = self._said.read_text("utf-8", "replace")[-4000:] if self._said.exists() else ""
        self._said.unlink(missing_ok=True)
        return said

    def kill(self) -> None:
        """End it, whatever state it is in."""
        self._pipe.close()
        self.process.kill()
        self.process.join(10)
        self._last_words()


def _main(pipe: Pipe, said: str, setup: str, moment: Moment, number: int, url: str, options: dict[str, Any]) -> None:
    with open(said, "ab") as log:
        os.dup2(log.fileno(), 2)
    logging.basicConfig(level=logging.WARNING, format="%(process)d %(name)s %(message)s")
    boundary = Boundary(moment, number, pipe.send)
    guard_connections(boundary)
    if moment == "step":
        boundary.count_steps()
    asyncio.run(_work(pipe, setup, url, options))


async def _work(pipe: Pipe, setup: str, url: str, options: dict[str, Any]) -> None:
    runtime = RedisRuntime(url, **options)
    await SETUPS[setup](runtime)
    await runtime.start()
    pipe.send("ready")
    await asyncio.to_thread(pipe.poll, None)  # until the other end is closed
    await runtime.close()
