"""Agents of our partitions whose turns go on at a former owner: their messages wait here until the hold is over.

    held ──their turn was committed: the bell──▶ free
      │
      ├──the time is over, or the holder is gone──break_hold──▶ free
      │
      └──the holder is asked, and knows of no such turn: it drops the hold──▶ free

A server that went back may have the hold of a turn again that has ended. So the holder is asked, less and less often.

A freed agent is loaded anew. What its former owner has consumed meanwhile (its turn's own message, calls that were let
into that turn) is left out; the rest runs in order.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from typing import NamedTuple

from stagebell.errors import ServerError
from stagebell.runtime.redis.held_here import AskedHold
from stagebell.runtime.redis.keys import ProcessKeys
from stagebell.runtime.redis.membership import Membership
from stagebell.runtime.redis.parked import free, parked_in
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.services import Services

logger = logging.getLogger("stagebell")

_LOOK = 0.2  # seconds; the bell tells of most ends
_ASK, _ASK_AT_LEAST = 2.0, 60.0  # seconds


class _Hold(NamedTuple):
    """A hold as it is stored."""

    until_ms: int
    token: str
    turns: str

    @property
    def worker(self) -> str:
        """The holder."""
        parts = self.token.split(":")
        return parts[1] if len(parts) == 3 else ""


class _Question(NamedTuple):
    """When the holder is asked next, in seconds of the loop's clock, and how long is waited then."""

    hold: _Hold
    at: float
    pause: float


class HeldElsewhere:
    """Looks after what one worker owns and others hold."""

    def __init__(self, services: Services, membership: Membership) -> None:
        self._services = services
        self._membership = membership
        self._task: Task[None] | None = None
        self._questions: dict[tuple[str, str], _Question] = {}

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
            held = {(partition.keys.tag, agent) for partition in partitions for agent in partition.held}
            self._questions = {at: question for at, question in self._questions.items() if at in held}
            await asyncio.sleep(_LOOK)
        self._questions.clear()

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
            self._ask_now_and_then(partition, agent, hold)
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

    def _ask_now_and_then(self, partition: Partition, agent: str, hold: _Hold) -> None:
        """Ask the holder whether that turn goes on."""
        now, at = asyncio.get_running_loop().time(), (partition.keys.tag, agent)
        question = self._questions.get(at)
        if question is None or question.hold != hold:
            self._questions[at] = _Question(hold, now + _ASK, _ASK)
        elif now >= question.at and hold.worker:
            pause = min(2 * question.pause, _ASK_AT_LEAST)
            self._questions[at] = _Question(hold, now + pause, pause)
            holder = ProcessKeys(self._services.directory.keys.namespace, hold.worker)
            asked = AskedHold(partition.keys.tag, agent, hold.token, hold.turns)
            self._services.link.run(
                lambda scripts: scripts.ring(holder, kind="held", entry_id="", turn_id="", payload=asked.pack()),
                lambda outcome: None,  # a hint
            )

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
    token, _, turns = rest.partition("|")
    return _Hold(int(until) if until.isdecimal() else 0, token, turns)
