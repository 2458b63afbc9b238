"""The timers of the partitions that this worker owns: when one is due, its message goes into the inbox.

    set ──▶ due: promoted into the inbox ──▶ over, or due again `every` later

What holds at all times
    - The server decides: a script with the owner's token moves message and timer in one step, by the server's clock. So
      a message comes once for each time it is due, whoever owned the partition meanwhile.
    - Times that passed while nobody owned the partition, or all were late, come as one.
    - An alarm in this process, or a bell that tells of a new timer, is only a hint when to look; all are looked at once
      a second.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import TimerHandle, get_running_loop

from stagebell.errors import ServerError
from stagebell.runtime.redis.owned import Owned
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.timed import delivery_of
from stagebell.runtime.redis.timer_scripts import DueTimer

logger = logging.getLogger("stagebell")

_BATCH = 100
_PERIOD = 1.0  # seconds


class DueTimers:
    """See the top of this file."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._alarms: dict[str, TimerHandle] = {}
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._told: set[str] = set()
        self._next_look = 0.0

    async def look(self) -> None:
        """Set alarms for what is due next; does nothing when it was done within the last second."""
        now = get_running_loop().time()
        owned = [partition for partition in self._services.partitions.values() if partition.owned]
        if now < self._next_look or not owned:
            return
        self._next_look = now + _PERIOD
        keys = [partition.keys for partition in owned]
        now_ms, *earliest = await self._services.link.submit(lambda scripts: scripts.upcoming(keys))
        for partition, due in zip(owned, earliest, strict=True):
            if due >= 0:
                self._wake_in(partition, due - now_ms)

    def heard(self, tag: str) -> None:
        """A timer was set in the partition with this tag, or is due there."""
        partition = self._services.partitions.get(tag)
        if partition is None or not partition.owned or self._services.stopping:
            return
        if tag in self._busy:
            self._again.add(tag)
        else:
            self._busy.add(tag)
            self._services.dispatcher.spawn(self._promote_all(partition))

    def close(self) -> None:
        """Look no more."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def _wake_in(self, partition: Owned, ms: int) -> None:
        tag, loop = partition.keys.tag, get_running_loop()
        at = loop.time() + max(0, ms) / 1000
        alarm = self._alarms.get(tag)
        if alarm is not None and not alarm.cancelled() and loop.time() < alarm.when() <= at:
            return
        if alarm is not None:
            alarm.cancel()
        self._alarms[tag] = loop.call_at(at, self.heard, tag)  # whoever owns it by then

    async def _promote_all(self, partition: Owned) -> None:
        tag = partition.keys.tag
        try:
            while partition.owned:
                self._again.discard(tag)
                due = await self._services.link.submit(lambda scripts: scripts.due(partition.keys, count=_BATCH))
                came = await asyncio.gather(*(self._promote(partition, timer) for timer in due.timers))
                if not any(came) and tag not in self._again:
                    if due.following >= 0:
                        self._wake_in(partition, due.following - due.now_ms)
                    break
        except ServerError as error:  # looked at again in a second
            logger.debug("timers of %s are put off: %s", tag, error)
        finally:
            self._busy.discard(tag)

    async def _promote(self, partition: Owned, due: DueTimer) -> bool:
        """Returns True when its message is in the inbox now."""
        nonce, delivery = delivery_of(partition.keys, due)
        reply = await self._services.link.submit(lambda scripts: scripts.promote(partition.token, due, nonce, delivery))
        if reply.status == "FENCED":
            self._services.on_lost(partition)
        elif reply.status not in ("OK", "GONE"):
            key = f"{due.timer} of {partition.keys.tag}"
            if key not in self._told:
                self._told.add(key)
                logger.error("timer %s cannot come: %s %s", key, reply.status, reply.detail)
        return reply.status == "OK"
