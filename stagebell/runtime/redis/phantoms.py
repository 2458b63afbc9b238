"""Messages in memory that the inbox does not hold, when the number of its entries does not tell.

A server that went back has lost entries which are in memory here, and may have given their ids to others since, which
count as read. One hides the other. So the entries themselves are compared where nothing moves: when the oldest message
in memory has been the oldest for a while, and then less and less often.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from stagebell.runtime.redis.holding import Holding
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.parked import Incoming

logger = logging.getLogger("stagebell")

_FIRST = 2  # audits
_MOST = 64


class Compared(Protocol):
    """The partition, as far as it matters here."""

    keys: LeasedKeys
    owned: bool
    draining: bool
    generation: int
    held: set[str]
    holding: Holding

    @property
    def pending(self) -> Mapping[str, Incoming]:
        """What is in memory, the oldest first."""
        ...

    def start_over(self) -> None:
        """Read everything again."""
        ...


class Phantoms:
    """Looks for them in one partition."""

    def __init__(self, partition: Compared, link: Link) -> None:
        self._partition = partition
        self._link = link
        self._oldest = ""
        self._audits = 0
        self._wait = _FIRST

    def look(self) -> None:
        """At each audit that found the right number of entries, or too few of them."""
        partition = self._partition
        oldest = next(iter(partition.pending), "")
        if oldest != self._oldest:
            self._oldest, self._audits, self._wait = oldest, 0, _FIRST
        # What a former owner still runs it consumes behind our back.
        if not oldest or partition.held:
            return
        self._audits += 1
        if self._audits < self._wait:
            return
        self._audits, self._wait = 0, min(2 * self._wait, _MOST)
        entries = [(id, message.turn_id) for id, message in partition.pending.items()]
        entries += [(id, "") for id in partition.holding.ids()]
        generation = partition.generation
        self._link.run(
            lambda scripts: scripts.absent(partition.keys.inbox, entries),
            lambda answer: self._hear(answer, generation),
        )

    def _hear(self, answer: Sequence[bytes] | BaseException, generation: int) -> None:
        partition = self._partition
        if isinstance(answer, BaseException) or generation != partition.generation:
            return
        if not partition.owned or partition.draining or partition.held:
            return
        # What was consumed by a commit that left before the question was told so before the answer.
        lost = [id for id in map(bytes.decode, answer) if id in partition.pending or partition.holding.has(id)]
        if lost:
            text = "%s: %s is in memory only, the server lost writes: reading again"
            logger.warning(text, partition.keys.inbox, lost[0])
            partition.start_over()
