"""The processes of a benchmark across processes: a gRPC host, workers of each kind, the floors' worker.

Run as `python -m benchmarks.children KIND JSON`. A child prints `ready`; to `expect N` on its standard
input it answers `armed`, and with the N-th event it received `done TIME` (`perf_counter`, which processes
of one machine share). It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from benchmarks import streams
from benchmarks.scenarios.agents import Deliveries, register


def say(text: str) -> None:
    print(text, flush=True)


@asynccontextmanager
async def grpc_host(_: Deliveries, *, port: int) -> AsyncIterator[None]:
    from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntimeHost

    host = GrpcWorkerAgentRuntimeHost(f"127.0.0.1:{port}")
    host.start()
    await _until_listening(port)
    yield
    await host.stop(grace=0)


@asynccontextmanager
async def grpc_worker(deliveries: Deliveries, *, port: int, types: int) -> AsyncIterator[None]:
    from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntime

    runtime = GrpcWorkerAgentRuntime(f"127.0.0.1:{port}")
    await runtime.start()
    await register(runtime, deliveries, types=types)
    yield
    await runtime.stop()


@asynccontextmanager
async def stagebell_worker(
    deliveries: Deliveries, *, port: int, namespace: str, types: int, stateful: bool
) -> AsyncIterator[None]:
    from stagebell import RedisRuntime

    runtime = RedisRuntime(f"redis://127.0.0.1:{port}", namespace=namespace)
    await runtime.start()
    await register(runtime, deliveries, types=types, stateful=stateful)
    yield
    await runtime.stop()


@asynccontextmanager
async def bare_worker(deliveries: Deliveries, *, port: int, link: str, name: str) -> AsyncIterator[None]:
    links = [await streams.connect(link, port) for _ in range(3)]
    tasks = [
        asyncio.create_task(_sink(links[0], f"{name}:in", deliveries)),
        asyncio.create_task(_echo(links[1], links[2], f"{name}:calls", f"{name}:rep")),
    ]
    yield
    for task in tasks:
        task.cancel()
    for each in links:
        await each.close()


async def _sink(link: streams.Link, stream: str, deliveries: Deliveries) -> None:
    last = b"0"
    while True:
        for entry in await streams.read(link, stream, last):
            deliveries.one()
            last = entry[0]


async def _echo(reader: streams.Link, writer: streams.Link, stream: str, replies: str) -> None:
    last = b"0"
    while True:
        for entry in await streams.read(reader, stream, last):
            writer.execute("XADD", replies, "MAXLEN", "~", 10_000, "*", "m", streams.field(entry))
            last = entry[0]


async def _until_listening(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


CHILDREN: dict[str, Callable[..., AbstractAsyncContextManager[None]]] = {
    "grpc-host": grpc_host,
    "grpc-worker": grpc_worker,
    "stagebell-worker": stagebell_worker,
    "bare-worker": bare_worker,
}


async def main(kind: str, settings: dict[str, Any]) -> None:
    """Be one child until standard input ends."""
    deliveries = Deliveries(lambda moment: say(f"done {moment!r}"))
    lines = await _standard_input()
    async with CHILDREN[kind](deliveries, **settings):
        gc.collect()
        gc.freeze()  # as `stagebell worker` does with what it has loaded; of every contender
        say("ready")
        while line := await lines.readline():
            deliveries.expect(int(line.split()[1]))
            say("armed")


async def _standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
