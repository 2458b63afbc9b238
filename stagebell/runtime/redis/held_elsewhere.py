"""Agents of our partitions whose turns go on at a former owner: their messages wait here until the hold is over.

    held ──their turn was committed: the bell──▶ free
      │
      └──the time is over, or the holder is gone──break_hold──▶ free

A freed agent is loaded anew. What its former owner has consumed meanwhile (its turn's own message, calls that were let
into that turn) is left out; the rest runs in order.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from typing import NamedTuple

from stagebell.errors import ServerError
from stagebell.runtime.redis.membership import Membership
from stagebell.runtime.redis.parked import free, parked_in
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.services import Services

logger = logging.getLogger("stagebell")

_LOOK = 0.2  # seconds; the bell tells of most ends


class _Hold(NamedTuple):
    """A hold as it is stored."""

    until_ms: int
    worker: str


class HeldElsewhere:
    """Looks after what one worker owns and others hold."""

    def __init__(self, services: Services, membership: Membership) -> None:
        self._services = services
        self._membership = membership
        self._task: Task[None] | None = None

    def watch(self, partition: Partition) -> None:
        """We own this partition, and perhaps not all of its agents."""
        if partition.held and (self._task is None or self._task.done()):
            self._task = self._services.dispatcher.spawn(self._look_for_ever())

    def freed(self, tag: str, agent: str) -> None:
        """The bell: the turn that held an agent has ended."""
        partition = self._services.partitions.get(tag)
        if isinstance(partition, Partition) and agent in partition.held:
            self._services.dispatcher.spawn(self._free_all(partition, [agent]))

    def _held(self) -> list[Partition]:
        return [each for each in self._services.partitions.values() if isinstance(each, Partition) and each.held]

    async def _look_for_ever(self) -> None:
        while partitions := self._held():
            await asyncio.gather(*map(self._look, partitions))
            await asyncio.sleep(_LOOK)

    async def _look(self, partition: Partition) -> None:
        try:
            flat = await self._services.link.ask("HGETALL", partition.keys.hold)
            seconds, micros = await self._services.link.ask("TIME")
            now_ms = int(seconds) * 1000 + int(micros) // 1000
            holds = {agent.decode(): _hold(hold) for agent, hold in zip(flat[::2], flat[1::2], strict=True)}
            held = [(agent, holds.get(agent)) for agent in list(partition.held)]
            over = [agent for agent, hold in held if hold is None or await self._broken(partition, agent, hold, now_ms)]
        except ServerError as error:
            logger.debug("the holds of %s are not looked at now: %s", partition.keys.tag, error)
        else:
            await self._free_all(partition, over)

    async def _broken(self, partition: Partition, agent: str, hold: _Hold, now_ms: int) -> bool:
        gone = self._membership.is_gone(hold.worker)
        if not gone and hold.until_ms > now_ms:
            return False
        broken = await self._services.link.submit(
            lambda scripts: scripts.break_hold(partition.keys, token=partition.token, agent=agent, gone=gone)
        )
        if broken == 1:
            why = "has ended" if gone else "took too long"
            logger.warning("worker %s %s: a turn of %s is run again here", hold.worker, why, agent)
        elif broken == -1:
            self._services.on_lost(partition)
        return broken == 1

    async def _free_all(self, partition: Partition, agents: list[str]) -> None:
        try:
            await asyncio.gather(*(self._free(partition, agent) for agent in agents))
        except ServerError as error:  # the next look comes soon
            logger.debug("agents of %s are not freed now: %s", partition.keys.tag, error)

    async def _free(self, partition: Partition, agent: str) -> None:
        waiting, inbox = list(parked_in(partition, agent)), partition.keys.inbox
        found = await asyncio.gather(*(self._services.link.ask("XRANGE", inbox, id, id) for id in waiting))
        if partition.owned and agent in partition.held:
            free(partition, agent, {id for id, entries in zip(waiting, found, strict=True) if not entries})


def _hold(stored: bytes) -> _Hold:
    """What a foreign hand wrote is over at once."""
    until, _, rest = stored.decode("utf-8", "replace").partition("|")
    parts = rest.split("|")[0].split(":")
    return _Hold(int(until) if until.isdecimal() else 0, parts[1] if len(parts) == 3 else "")
