"""The simulated network between simulated processes and the server: delays, broken connections, lost replies.

The production connection runs over it unchanged. A command travels, is executed at a moment of its own, and its reply
travels back; either may get lost, with the connection. What was under way when a process dies, or gives its connection
up, may still reach the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis

from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.store import ADDING, Refused, Store

Command = Sequence[bytes]
Watcher = Callable[["Line", str, Command, Any], None]

_NEXT = 1e-9  # what travels over one connection stays in order


@dataclass
class Weather:
    """How the network is, in seconds and probabilities for each command."""

    delay: float = 0.001
    stall: float = 0.0
    stalled_for: float = 1.0
    lost_reply: float = 0.0
    lost_command: float = 0.0


class Line(asyncio.Transport):
    """One connection, as its process sees it."""

    def __init__(self, network: Network, process: Process, protocol: asyncio.Protocol, number: int) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.protocol = protocol
        self.number = number
        self.closed = False  # by its process
        self.cut = False  # by the network
        self.late = True  # what was under way when it was closed still arrives
        self.arrives = self.returns = 0.0
        self.parked: tuple[Command, int] | None = None
        self.reads = 0
        self._requests = hiredis.Reader()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is room for everything."""

    def write(self, data: Any) -> None:
        """Commands leave."""
        if self.closed or self.cut:
            return
        self._requests.feed(data)
        while (command := self._requests.gets()) is not False:
            self.network.send(self, command)

    def abort(self) -> None:
        """The process closes it."""
        self.network.closed(self)

    def close(self) -> None:
        """The same."""
        self.network.closed(self)

    def is_closing(self) -> bool:
        """True when it carries nothing more."""
        return self.closed or self.cut


class Network:
    """All connections of one schedule. `watch` sees each command that the server executed, and may interfere."""

    def __init__(self, loop: SimulatedLoop, store: Store, watch: Watcher) -> None:
        self.loop = loop
        self.store = store
        self.watch = watch
        self.weather = Weather()
        self.lines: list[Line] = []
        self.busy_until = 0.0
        """When the last of the commands that are on their way arrives."""
        self._numbers = 0
        loop.connect = self.connect

    def execute(self, command: Command) -> Any:
        """Let the server execute a command at this moment, and wake those who wait for what it adds."""
        self.store.now_ms = int(self.loop.now * 1000)
        answer = self.store.execute(command)
        if self.store.name_of(command) in ADDING or command[0] == b"XADD":
            self.look_again()
        return answer

    def delay(self) -> float:
        """How long something travels."""
        chance, weather = self.loop.chance, self.weather
        if weather.stall and chance.random() < weather.stall:
            return chance.random() * weather.stalled_for
        return chance.random() * weather.delay

    async def connect(self, protocol_factory: Callable[[], asyncio.Protocol]) -> tuple[Line, asyncio.Protocol]:
        """Open a connection for the process that runs now."""
        process = self.loop.current
        assert process is not None
        await asyncio.sleep(self.delay())
        protocol = protocol_factory()
        self._numbers += 1
        line = Line(self, process, protocol, self._numbers)
        self.lines.append(line)
        protocol.connection_made(line)
        return line, protocol

    # -- commands there and replies back, each in order

    def send(self, line: Line, command: Command) -> None:
        """A command leaves."""
        line.arrives = max(line.arrives + _NEXT, self.loop.now + self.delay())
        self.busy_until = max(self.busy_until, line.arrives)
        self.loop.at(line.arrives, None, self._arrive, line, command)

    def _arrive(self, line: Line, command: Command) -> None:
        if line.cut or (line.closed and not line.late):
            return
        chance, weather = self.loop.chance, self.weather
        if weather.lost_command and chance.random() < weather.lost_command:
            self.break_line(line)
            return
        if b"BLOCK" in command[:6] and command[0] == b"XREAD":
            self._park(line, command)
            return
        name = self.store.name_of(command)
        answer = self.execute(command)
        lost = weather.lost_reply and chance.random() < weather.lost_reply
        if not lost:
            self._reply(line, answer)
        self.watch(line, name, command, answer)
        if lost:
            self.break_line(line)

    def _reply(self, line: Line, answer: Any) -> None:
        if line.closed or line.cut or not line.process.alive:
            return
        line.returns = max(line.returns + _NEXT, self.loop.now + self.delay())
        self.loop.at(line.returns, line.process, self._deliver, line, encode(answer))

    def _deliver(self, line: Line, data: bytes) -> None:
        if not line.closed and not line.cut:
            line.protocol.data_received(data)

    # -- reads that block

    def _park(self, line: Line, command: Command) -> None:
        found = self.store.read(command)[0]
        if found is not None:
            self._reply(line, found)
            return
        line.reads += 1
        line.parked = command, line.reads
        patience = int(command[command.index(b"BLOCK") + 1]) / 1000
        self.loop.later(patience, None, self._unpark, line, line.reads)

    def _unpark(self, line: Line, read: int) -> None:
        if line.parked is not None and line.parked[1] == read:
            line.parked = None
            self._reply(line, None)

    def look_again(self) -> None:
        """Something may have come for those who wait."""
        waiting = [line for line in self.lines if line.parked is not None]
        if not waiting:
            return
        for line, found in zip(waiting, self.store.read(*(line.parked[0] for line in waiting)), strict=True):
            if found is not None:
                line.parked = None
                self._reply(line, found)

    # -- ends

    def break_line(self, line: Line) -> None:
        """The network breaks a connection: nothing on its way arrives."""
        line.cut = True
        line.parked = None
        if line in self.lines:
            self.lines.remove(line)
        if line.process.alive and not line.closed:
            lost = ConnectionResetError("broken by the simulation")
            self.loop.later(self.delay(), line.process, line.protocol.connection_lost, lost)

    def break_all(self) -> None:
        """Every connection breaks at once."""
        for line in list(self.lines):
            self.break_line(line)

    def closed(self, line: Line) -> None:
        """A process closes a connection; what it had sent may still arrive."""
        if not line.closed:
            line.closed = True
            line.late = self.loop.chance.random() < 0.5
            line.parked = None
            if line in self.lines:
                self.lines.remove(line)

    def bury(self, process: Process) -> None:
        """A process has died."""
        for line in [line for line in self.lines if line.process is process]:
            self.closed(line)


def encode(answer: Any) -> bytes:
    """An answer as the server would write it."""
    if isinstance(answer, bytes):
        return b"$%d\r\n%b\r\n" % (len(answer), answer)
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if answer is None:
        return b"$-1\r\n"
    if isinstance(answer, Refused):
        return b"-%b\r\n" % str(answer).encode()
    return b"*%d\r\n%b" % (len(answer), b"".join(map(encode, answer)))
