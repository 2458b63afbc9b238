"""A worker that is known to be dead: others take over what it owned at once, not when its leases end.

Only whoever has seen the process end may say so: its parent, which has reaped it. Nothing depends on that being true.
The leases of that very worker end now and its last beat counts as old, as both would by themselves a little later; its
token stays the fence, so one that lived after all would lose its agents as one does that was silent for too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from stagebell.runtime.redis.client import find_server
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.keys import EventsKeys, LeasedKeys, NamespaceKeys, ProcessKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.membership import Membership


async def report_gone(url: str | None, folder: Path | None, namespace: str, worker: str, *, lease_ms: int) -> int:
    """Tell the server that the process of a worker has ended.

    Args:
        url: of the server; None for the embedded server of `folder`.
        folder: as `RedisRuntime` takes it.
        namespace: of the worker.
        worker: its name.
        lease_ms: who was not heard of for so many milliseconds is told nothing.

    Returns:
        How many of its leases were ended.

    Raises:
        ServerUnavailable: the server cannot be reached.
        ServerRefused: it refused the credentials or a command.
        ServerNotFound: there is no program for the embedded server.
    """
    place, server = await find_server(url, folder)
    try:
        link = Link(place, namespace, f"stagebell-gone-{worker}")
        try:
            await link.open()
            return await _report(link, namespace, worker, lease_ms)
        finally:
            await link.close()
    finally:
        if server is not None:
            server.release()


async def _report(link: Link, namespace: str, worker: str, lease_ms: int) -> int:
    directory, membership = Directory(link, namespace, partitions=1), Membership(link, namespace, lease_ms)
    await asyncio.gather(directory.refresh(), membership.refresh())

    def end(keys: LeasedKeys, heirs: list[str]) -> asyncio.Future[bool]:
        others = [name for name in heirs if name != worker]
        return link.submit(lambda scripts: scripts.gone(keys, worker=worker, heirs=others))

    everybody = [member.name for member in membership.members if member.types]
    ends = [end(keys, membership.hosts(name)) for name, keys in _partitions(directory)]
    ends += [end(EventsKeys(namespace), everybody), end(ProcessKeys(namespace, worker), [])]
    ended = await asyncio.gather(*ends)
    # At last: who sees it silent cleans up after it, and must find the inbox of its process free.
    await link.ask("ZADD", NamespaceKeys(namespace).workers, "XX", "0", worker)
    return sum(ended)


def _partitions(directory: Directory) -> Iterator[tuple[str, LeasedKeys]]:
    for name, entry in directory.types.items():
        for number in range(entry.partitions):
            yield name, directory.partition(name, number)
