"""Stages: what a contender across processes needs, started and ended, with the client that drives it.

A stage is one server or host, one worker process, and the client in this process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from autogen_core import AgentId, AgentRuntime, TopicId

from benchmarks import streams
from benchmarks.scenarios.agents import know_messages
from benchmarks.scenarios.messages import Order, Receipt, Tick

PAYLOAD = b"x" * 100
"""What the bare streams carry in place of a message."""

CHILD_LIMIT = 60.0
"""Seconds that a child process may take for one step."""


class Client(Protocol):
    """How messages get into a stage."""

    async def publish(self, message: Tick, topic: TopicId) -> None: ...

    async def call(self, message: Order, agent: AgentId) -> object: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """A worker process that counts, and a client that sends to it."""

    client: Client
    worker: Child
    publishers: int
    """Publishes in flight; 1 where a publish does not wait for an answer."""


class Child:
    """A process of `benchmarks.children`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def expect(self, count: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"expect {count}\n".encode())
        await self.line("armed")

    async def done(self) -> float:
        """The time of the last awaited event (`perf_counter`, seconds)."""
        return float(await self.line("done"))

    async def line(self, word: str) -> str:
        """The rest of the next line that begins with `word`."""
        assert self._process.stdout is not None
        async with asyncio.timeout(CHILD_LIMIT):
            while line := (await self._process.stdout.readline()).decode():
                first, _, rest = line.strip().partition(" ")
                if first == word:
                    return rest
        raise RuntimeError(f"a child process ended before it said {word!r}")

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def child(kind: str, **settings: Any) -> AsyncIterator[Child]:
    """Start a child process, wait until it is ready, end it with the block."""
    command = [sys.executable, "-m", "benchmarks.children", kind, json.dumps(settings)]
    pipe = asyncio.subprocess.PIPE
    running = Child(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
    try:
        await running.line("ready")
        yield running
    finally:
        await running.end()


class RuntimeClient:
    """A runtime of AutoGen's protocol used from outside."""

    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime
        know_messages(runtime)

    async def publish(self, message: Tick, topic: TopicId) -> None:
        await self._runtime.publish_message(message, topic)

    async def call(self, message: Order, agent: AgentId) -> object:
        return await self._runtime.send_message(message, agent)


class BareClient:
    """The least: one entry of 100 bytes a message; a call waits for the entry of its number to come back."""

    def __init__(self, name: str, writer: streams.Link, reader: streams.Link) -> None:
        self._name = name
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._calls = 0
        self._task = asyncio.create_task(self._receive(reader))

    async def publish(self, message: Tick, topic: TopicId) -> None:
        await self._writer.execute("XADD", f"{self._name}:in", "*", "m", PAYLOAD)

    async def call(self, message: Order, agent: AgentId) -> object:
        self._calls += 1
        reply = self._waiting[self._calls] = asyncio.get_running_loop().create_future()
        entry = b"%d %s" % (self._calls, PAYLOAD)
        self._writer.execute("XADD", f"{self._name}:calls", "MAXLEN", "~", 10_000, "*", "m", entry)
        return await reply

    async def _receive(self, reader: streams.Link) -> None:
        last = b"0"
        while True:
            for entry in await streams.read(reader, f"{self._name}:rep", last):
                number, _, _ = streams.field(entry).partition(b" ")
                self._waiting.pop(int(number)).set_result(None)
                last = entry[0]

    def close(self) -> None:
        self._task.cancel()


@asynccontextmanager
async def grpc_stage(port: int, types: int) -> AsyncIterator[Stage]:
    """AutoGen's gRPC runtime: host, one worker, a client that is a worker without agents."""
    from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntime

    async with child("grpc-host", port=port), child("grpc-worker", port=port, types=types) as worker:
        runtime = GrpcWorkerAgentRuntime(f"127.0.0.1:{port}")
        await runtime.start()
        try:
            yield Stage(RuntimeClient(runtime), worker, publishers=1)
        finally:
            await runtime.stop()


@asynccontextmanager
async def stagebell_stage(port: int, types: int, stateful: bool) -> AsyncIterator[Stage]:
    """Ours: one worker process and a `Publisher`."""
    from stagebell import Publisher

    namespace = _fresh_name()
    settings = {"port": port, "namespace": namespace, "types": types, "stateful": stateful}
    url = f"redis://127.0.0.1:{port}"
    async with (
        child("stagebell-worker", **settings) as worker,
        Publisher(url, namespace=namespace) as publisher,
    ):
        publisher.register(Receipt)
        yield Stage(publisher, worker, publishers=256)


@asynccontextmanager
async def bare_stage(port: int, link: str) -> AsyncIterator[Stage]:
    """The floor: XADD, XREAD BLOCK, XADD; no agents, no types, no guarantee."""
    name = _fresh_name()
    async with child("bare-worker", port=port, link=link, name=name) as worker:
        writer, reader = await streams.connect(link, port), await streams.connect(link, port)
        client = BareClient(name, writer, reader)
        try:
            yield Stage(client, worker, publishers=256)
        finally:
            client.close()
            await writer.close()
            await reader.close()


def _fresh_name() -> str:
    """A namespace that no earlier stage on the same server has used."""
    return f"bench-{uuid.uuid4().hex[:8]}"
