"""Marks of calls whose replies come later, and whose deadline is over: nobody waits for them, and they go.

The worker that commits a mark drops it soon after its deadline. Whoever owns the partition next, or reads it anew, goes
through all that are there. That one is dropped twice, or late, does no harm. One whose agent wants to know stays, since
whoever gives the call up drops it and tells the agent in one step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from stagebell.runtime.engine.clock import Clock
from stagebell.runtime.redis.effects import Effect, Mark, read_mark, set_mark
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link

logger = logging.getLogger("stagebell")

KEPT_MS = 1_000  # for so long after its deadline a call can be answered, though nobody hears it, and only once
_SLACK_MS = 1_000  # by so much the clocks of two workers may differ


class ExpiringMarks:
    """Those of one process."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    def set(self, keys: LeasedKeys, turn_id: str, mark: Mark) -> Effect:
        """The reply to the call that this turn handled comes later."""
        self._watch(keys, turn_id, mark)
        return set_mark(keys, turn_id, mark)

    def look(self, keys: LeasedKeys) -> None:
        """A partition is ours, or is read anew: see what is there."""
        self._link.run(lambda scripts: scripts.marks(keys), lambda answer: self._watch_all(keys, answer))

    def _watch_all(self, keys: LeasedKeys, answer: Mapping[str, bytes] | BaseException) -> None:
        if isinstance(answer, BaseException):
            logger.debug("%s is not looked through now: %s", keys.later, answer)
            return
        for turn_id, stored in answer.items():
            mark = read_mark(stored)
            if mark is not None:
                self._watch(keys, turn_id, mark)

    def _watch(self, keys: LeasedKeys, turn_id: str, mark: Mark) -> None:
        if mark.deadline is not None and not mark.if_given_up:
            self._clock.call_at(mark.deadline + KEPT_MS + _SLACK_MS, lambda: self._drop(keys, turn_id))

    def _drop(self, keys: LeasedKeys, turn_id: str) -> None:
        self._link.run(lambda scripts: scripts.drop_mark(keys, turn_id), lambda answer: None)
