"""The server restarts, loses its last writes, fails over, or is slow: nothing happens twice, and nothing hangs.

What the server has kept decides. What it accepted and then lost is gone, state and inbox and outputs together; what
it kept takes effect exactly once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stagebell import Publisher
from stagebell.testing import FaultyConnection
from tests.failure.evidence import kept_on_failure
from tests.failure.history import Load, check, check_what_survived
from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

LEASE = 1.0
TLS = Path(__file__).parents[1] / "support" / "tls"


def durable(server: Server, fsync: str) -> Server:
    """A server of the same kind that keeps an append-only file."""
    return Server(server.kind, args=("--appendonly", "yes", "--appendfsync", fsync, "--aof-load-truncated", "yes"))


@pytest.fixture
def everysec(server: Server) -> Iterator[Server]:
    with durable(server, "everysec") as own:
        yield own


@pytest.fixture
def always(server: Server) -> Iterator[Server]:
    with durable(server, "always") as own:
        yield own


@asynccontextmanager
async def at_work(url: str, namespace: str, folder: Path) -> AsyncIterator[Workers]:
    workers = Workers(url, namespace, folder)
    try:
        await workers.start("audit", 2, lease=LEASE)
        yield workers
    finally:
        workers.reap()
        print(workers.report())


async def at_rest(server: Server, namespace: str) -> View:
    view = View(server.client(), namespace)
    await eventually(lambda: view.backlog() == 0, within=20)
    await eventually(lambda: not view.left_behind(), within=5)
    return view


async def reached(load: Load, run: asyncio.Task[None], share: float) -> None:
    await eventually(lambda: load.sent > share * load.total or run.done(), within=30)


def cut(server: Server, chance: random.Random, most: int) -> int:
    """Cut the end off the append-only file, anywhere; returns how many bytes."""
    file = max(server.dir.glob("appendonlydir/*.incr.aof"), key=lambda path: path.stat().st_mtime)
    size = file.stat().st_size
    bytes_lost = min(chance.randrange(1, most), size - 1)
    with file.open("r+b") as aof:
        aof.truncate(size - bytes_lost)
    return bytes_lost


async def test_what_was_accepted_survives_a_kill_of_a_server_that_syncs_always(
    always: Server, namespace: str, tmp_path: Path
) -> None:
    async with at_work(always.url, namespace, tmp_path):
        async with Publisher(always.url, namespace=namespace) as publisher:
            load = Load(publisher, seed=41, agents=40)
            run = asyncio.create_task(load.run(60))
            for share in (0.3, 0.6):
                await reached(load, run, share)
                await asyncio.to_thread(always.restart, kill=True)
            await run
        check(await at_rest(always, namespace), [load])


async def test_a_cut_append_only_file_loses_the_last_messages_and_nothing_else(
    everysec: Server, namespace: str, tmp_path: Path
) -> None:
    """I3, I13: a server that is behind memory is noticed before any effect."""
    await lose_the_tail(everysec, namespace, tmp_path, seed=2)


@pytest.mark.torture
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(100, 112))
async def test_a_cut_append_only_file_at_many_places(
    everysec: Server, namespace: str, tmp_path: Path, seed: int
) -> None:
    await lose_the_tail(everysec, namespace, tmp_path, seed)


async def lose_the_tail(server: Server, namespace: str, folder: Path, seed: int) -> None:
    """I3, I13: the server is killed and the end of its history cut off, in the middle of a run."""
    chance = random.Random(seed)
    async with at_work(server.url, namespace, folder):
        async with Publisher(server.url, namespace=namespace) as publisher:
            load = Load(publisher, seed=seed, agents=40, forgiving=True)
            run = asyncio.create_task(load.run(60))
            await reached(load, run, chance.uniform(0.2, 0.7))
            await asyncio.to_thread(server.kill)
            lost = cut(server, chance, 200_000)
            await asyncio.to_thread(server.start)
            with kept_on_failure(f"cut-{server.kind}-{seed}", server, [load]):
                await run
                view = await at_rest(server, namespace)
                check_what_survived(view, [load])
    print(f"seed {seed}: {lost:,} bytes cut, {load.lost} calls without an outcome")


async def test_a_failover_that_loses_acknowledged_writes(server: Server, namespace: str, tmp_path: Path) -> None:
    """The replica that takes over has not heard of the last writes."""
    with Server(server.kind) as primary, Server(server.kind) as replica:
        heir = replica.client()
        heir.replicaof("127.0.0.1", primary.port)
        await eventually(lambda: heir.info("replication")["master_link_status"] == "up", within=10)
        async with FaultyConnection(primary.url) as line, at_work(line.url, namespace, tmp_path):
            async with Publisher(line.url, namespace=namespace) as publisher:
                load = Load(publisher, seed=51, agents=40, forgiving=True)
                run = asyncio.create_task(load.run(60))
                await reached(load, run, 0.3)
                heir.replicaof("NO", "ONE")
                await reached(load, run, 0.4)
                line.lead_to(replica.url)
                primary.kill()
                await run
            view = await at_rest(replica, namespace)
        check_what_survived(view, [load])
        heir.close()


async def test_a_server_that_stands_still_longer_than_the_lease_costs_time_and_nothing_else(
    server: Server, namespace: str, tmp_path: Path
) -> None:
    with Server(server.kind) as own:
        async with at_work(own.url, namespace, tmp_path):
            async with Publisher(own.url, namespace=namespace) as publisher:
                load = Load(publisher, seed=61, agents=40)
                run = asyncio.create_task(load.run(60))
                await reached(load, run, 0.3)
                client = own.client()
                client.execute_command("CLIENT", "PAUSE", int(LEASE * 1500), "ALL")
                await run
                client.close()
            check(await at_rest(own, namespace), [load])


async def test_everything_goes_through_tls(server: Server, namespace: str, tmp_path: Path) -> None:
    ask = f"?ssl_ca_certs={TLS / 'ca.pem'}"
    async with FaultyConnection(server.url, tls=TLS) as line:
        url = line.url + ask
        async with at_work(url, namespace, tmp_path):
            async with Publisher(url, namespace=namespace) as publisher:
                load = Load(publisher, seed=71, agents=10)
                await load.run()
            check(await at_rest(server, namespace), [load])
