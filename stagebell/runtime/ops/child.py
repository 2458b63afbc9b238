"""One child of the supervisor: a worker process and the line to it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, cast

_LAST_WORDS_SECONDS = 1.0


@dataclass(slots=True)
class Child:
    """A worker process; `worker` and `types` are known once it is ready, `error` when it could not start.

    Its `name` in the namespace is known before it has anything there: it may die before it is ready.
    """

    process: Process
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _born: float = field(default_factory=time.monotonic)
    name: str = ""
    worker: str = ""
    types: list[str] = field(default_factory=list[str])
    error: str = ""

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Self:
        """Start it; the number of its end of the line is added to the command."""
        ours, theirs = socket.socketpair()
        with theirs:
            # A process group of its own: Ctrl-C in a terminal reaches the supervisor alone.
            process = await asyncio.create_subprocess_exec(
                *command,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                env=environment,
                stdin=DEVNULL,
                process_group=0,
            )
        return cls(process, *await asyncio.open_connection(sock=ours))

    async def hear(self) -> None:
        """Wait until it is ready, has told why it cannot be, or has ended."""
        facts = await self._next_facts()
        while "name" in facts:
            self.name = facts["name"]
            facts = await self._next_facts()
        self.worker, self.types = facts.get("worker", ""), facts.get("types", [])
        self.error = facts.get("error", "")

    async def _next_facts(self) -> dict[str, Any]:
        line = await self._next_line()
        return cast("dict[str, Any]", json.loads(line)) if line.endswith(b"\n") else {}

    async def _next_line(self) -> bytes:
        reading = asyncio.ensure_future(self._reader.readline())
        ending = asyncio.ensure_future(self.process.wait())
        await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
        # What it wrote before its end may still be on the way; the line itself may outlive it, in a process
        # that the user's code has forked.
        await asyncio.wait({reading}, timeout=_LAST_WORDS_SECONDS)
        reading.cancel()
        ending.cancel()
        with suppress(OSError, asyncio.CancelledError):
            return await reading
        return b""

    async def wait(self) -> float:
        """Wait until it has ended; returns for how many seconds it lived."""
        await self.process.wait()
        self._writer.close()
        return time.monotonic() - self._born

    @property
    def ended(self) -> bool:
        """True once it has ended."""
        return self.process.returncode is not None

    def ask_to_stop(self) -> None:
        """Let go of the line: it stops in order."""
        with suppress(OSError, RuntimeError):
            self._writer.write_eof()

    def kill(self) -> None:
        """End it by force."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def how_it_ended(self) -> str:
        """For people: `ended with exit code 1`, `was killed by SIGKILL`."""
        code = self.process.returncode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"
