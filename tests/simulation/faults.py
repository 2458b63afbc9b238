"""What goes wrong in a schedule: a worker dies, sleeps, starves or stops, a connection breaks, the server goes back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stagebell import RedisRuntime
from tests.simulation.loop import Process
from tests.simulation.network import Line

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

MOST_RESTARTS = 3
"""So many times a turn may be started in vain before it counts as the one that kills its workers."""


class Faults:
    """Those of one schedule; `raging` while they may happen."""

    def __init__(self, world: Schedule) -> None:
        self.raging = False
        self.counts: Counter[str] = Counter()
        self._world = world
        self.restarts = 0
        self._snapshot: tuple[list[tuple[bytes, bytes]], int] | None = None

    def perhaps(self, line: Line) -> None:
        """Let something happen, or nothing, now that a command of this line was executed."""
        chance = self._world.chance
        for fault, rate in self._world.plan.rates.items():
            if rate and chance.random() < rate:
                victim = line.process if chance.random() < 0.6 else chance.choice(self._world.loop.processes)
                getattr(self, f"_{fault}")(victim)
                break

    def _count(self, fault: str, victim: object = "") -> None:
        self.counts[fault] += 1
        self._world.note(f"==== {fault} {victim}")

    def _crash(self, victim: Process) -> None:
        if victim in self._world.workers and self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("crash", victim)
            self._bury(victim)
            self._world.loop.later(self._world.chance.random() * 2, None, self._world.start_worker)

    def _bury(self, victim: Process) -> None:
        self._world.loop.kill(victim)
        self._world.network.bury(victim)
        del self._world.workers[victim]

    def _pause(self, victim: Process) -> None:
        if self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("pause", victim)
            victim.asleep_until = self._world.loop.now + self._world.chance.choice([0.3, 1.5, 4.0])

    def _starve(self, victim: Process) -> None:
        if victim in self._world.workers and self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("starve", victim)
            victim.starved_until = self._world.loop.now + self._world.chance.choice([1.0, 2.5, 4.0])

    def _drain(self, victim: Process) -> None:
        runtime = self._world.workers.get(victim)
        if runtime is not None and self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("drain", victim)
            self._stop_soon(victim, runtime)
            self._world.loop.later(self._world.chance.random(), None, self._world.start_worker)

    def retire(self, victim: Process) -> None:
        """Stop a worker for good, unless it does not run."""
        runtime = self._world.workers.get(victim)
        if runtime is not None:
            self.restarts += 1
            self._count("retire", victim)
            self._stop_soon(victim, runtime)

    def _stop_soon(self, victim: Process, runtime: RedisRuntime) -> None:
        self._world.workers[victim] = None
        self._world.loop.spawn(victim, self._stop(victim, runtime))

    async def _stop(self, victim: Process, runtime: RedisRuntime) -> None:
        await runtime.close()
        self._world.note(f"==== {victim} has stopped")
        self._world.loop.later(0.0, None, self._gone, victim)

    def _gone(self, victim: Process) -> None:
        if victim.alive:
            self._bury(victim)

    def _break(self, victim: Process) -> None:
        lines = [line for line in self._world.network.lines if line.process is victim]
        if lines:
            self._count("break", victim)
            self._world.network.break_line(self._world.chance.choice(lines))

    def snapshot(self) -> None:
        """Remember what is in the server."""
        self._snapshot = self._world.store.snapshot(), len(self._world.client.events)

    def rollback(self) -> None:
        """The server loses what it was told since the snapshot, and other systems tell it again."""
        if self._snapshot is None or not self.raging:
            return
        snapshot, events = self._snapshot
        self._count("rollback")
        self.restarts += 1
        self._world.store.restore(snapshot)
        for root in self._world.client.events[events:]:
            self._world.client.event(root)
        if self._world.chance.random() < 0.7:  # as a restart does; a FLUSHALL does not
            self._world.network.break_all()
