"""Callers outside of all turns: a sign that they are alive, and the end of calls whose caller is not.

Each process keeps a key that expires. Who owns a callee may cancel what nobody waits for any more: by a setting, since
a caller that comes back with the same message id would want the reply.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from stagebell.runtime.redis.keys import alive_key
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.parked import Incoming
from stagebell.runtime.redis.partition import Partition

_ALIVE_MS = 10_000
_PERIOD = 2.0


class SignOfLife:
    """That of one process."""

    def __init__(self, link: Link, key: str) -> None:
        self._link = link
        self._key = key
        self._due = 0.0

    async def give(self) -> None:
        """Say that this process is alive, every two seconds."""
        now = asyncio.get_running_loop().time()
        if now >= self._due:
            self._due = now + _PERIOD
            self._link.tell("SET", self._key, "1", "PX", _ALIVE_MS)

    def end(self) -> None:
        """This process ends in order."""
        self._link.tell("DEL", self._key)


async def end_orphans(link: Link, partitions: Sequence[Partition]) -> None:
    """Cancel the calls whose callers have given no sign of life for long.

    Raises:
        ServerUnavailable: there is no connection at this moment.
    """
    waiting: dict[str, list[Incoming]] = defaultdict(list)
    for partition in partitions:
        for message in partition.pending.values():
            if message.caller_stream:
                waiting[message.caller_stream].append(message)
    for stream, messages in waiting.items():
        if await link.ask("GET", alive_key(stream)) is None:
            for message in messages:
                message.end_early("cancel")
