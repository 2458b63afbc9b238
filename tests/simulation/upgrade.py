"""A rolling upgrade in the course of a schedule: new workers come while old ones run on, which go one after the other.

The next version of the program writes states that the old one cannot read. Until the last old worker has gone both may
own any agent, and one that dies may be replaced by an old one: as when somebody breaks the upgrade off for a while.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.loop import Process
    from tests.simulation.schedule import Schedule


class Upgrade:
    """That of one schedule; `begins`: whether there is one."""

    def __init__(self, world: Schedule, chance: random.Random, *, begins: bool) -> None:
        self.begins = begins
        self._world = world
        self._chance = chance
        self._begun = False
        self._over = False
        self._going_back = False
        self._old: set[Process] = set()

    @property
    def done(self) -> bool:
        """True when no old worker is left."""
        return not self._begun or not any(process in self._world.workers for process in self._old)

    def version_of(self, process: Process) -> int:
        """Which program a worker that starts now runs."""
        old = not self._begun or (self._going_back and self._chance.random() < 0.25)
        if old:
            self._old.add(process)
        return 1 if old else 2

    def plan(self) -> None:
        """Let it happen in a while."""
        if self.begins:
            self._world.loop.later(self._chance.uniform(0.0, 1.5), None, self._begin)

    def finish(self) -> None:
        """From now on there are new workers only."""
        if self.begins:
            self._begin()
            self._over, self._going_back = True, False
            if all(process in self._old for process in self._world.workers):
                self._world.start_worker()
            for process in list(self._world.workers):
                self.retire(process)

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._world.note("==== upgrade")
        for _ in range(self._world.plan.workers):
            self._world.start_worker()
        self._going_back = True
        for process in self._old:
            if self._chance.random() < 0.7:
                self._world.loop.later(self._chance.uniform(0.0, 3.0), None, self.retire, process)

    def retire(self, process: Process) -> None:
        """Stop an old worker in order, if it runs."""
        if process in self._old:
            self._world.faults.retire(process)

    def started(self, process: Process) -> None:
        """A worker has come that should perhaps be gone by now."""
        if self._over:
            self.retire(process)
