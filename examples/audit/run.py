"""The job: an event per file, a worker killed on the way, the ranking at the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autogen_core import TopicId

from examples.audit.agents import FILE_TOPIC, REPORT, SUMMARY
from examples.audit.messages import (
    File,
    Progress,
    ProgressRequest,
    Ranking,
    RankingRequest,
    ReportRequest,
)
from examples.audit.outside import Outside
from examples.audit.recovery import Recovery, most_loaded
from examples.audit.report import Report
from examples.audit.tree import SourceFile
from examples.audit.workers import Worker

KILL_AT = 0.4
"""Share of the files that have been counted when a worker is killed."""
TOP = 12
STALLED_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_SETTLE_SECONDS = 1.0


@dataclass
class Outcome:
    """What the job came to; `seconds` runs from the first event to the last file counted."""

    report: Report
    ranking: Ranking
    seconds: float
    recovery: Recovery | None


@dataclass
class Job:
    """One run over the files; `workers` is empty when the agents live in this process.

    Args:
        outside: how to reach the agents.
        files: what to measure.
        show: called with the number of files counted, several times a second.
        note: called with a sentence when something happens.
        workers: the worker processes, to watch and to kill one of.
        kill: whether to kill one.
    """

    outside: Outside
    files: Sequence[SourceFile]
    show: Callable[[int], None]
    note: Callable[[str], None]
    workers: Sequence[Worker] = ()
    kill: bool = False
    recovery: Recovery | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._expected = Counter(file.package for file in self.files)

    async def run(self) -> Outcome:
        """Publishes every file, follows the work, and asks for the result.

        Raises:
            WorkerFailed: a worker ended that nobody had killed.
        """
        start = time.monotonic()
        await self._publish()
        end = await self._follow()
        report: Report = await self.outside.call(ReportRequest(), REPORT)
        ranking: Ranking = await self.outside.call(RankingRequest(top=TOP), SUMMARY)
        return Outcome(report, ranking, end - start, self.recovery)

    async def _publish(self) -> None:
        for file in self.files:
            message = File(package=file.package, number=file.number, path=str(file.path))
            await self.outside.publish(message, TopicId(FILE_TOPIC, file.package))

    async def _follow(self) -> float:
        """Looks until nothing is missing, then a little longer for what is too much; returns the end."""
        counted, changed = 0, time.monotonic()
        while True:
            progress = await self._look()
            now = time.monotonic()
            if progress.files != counted:
                counted, changed = progress.files, now
            if now - changed > (_SETTLE_SECONDS if self._is_complete(progress) else STALLED_SECONDS):
                return changed
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> Progress:
        progress: Progress = await self.outside.call(ProgressRequest(), REPORT)
        self.show(progress.files)
        for worker in self.workers:
            worker.check()
        if self.recovery is not None:
            self.recovery.see(progress, time.monotonic())
        elif self.kill and progress.files >= KILL_AT * len(self.files):
            self._kill_one(progress)
        return progress

    def _is_complete(self, progress: Progress) -> bool:
        nothing = (0, 0)
        return all(progress.by_package.get(name, nothing)[0] >= files for name, files in self._expected.items())

    def _kill_one(self, progress: Progress) -> None:
        by_pid = {worker.pid: worker for worker in self.workers}
        victim = by_pid[most_loaded(progress, self._expected, by_pid)]
        self.recovery = Recovery(victim.pid, progress, self._expected, time.monotonic())
        victim.kill()
        self.note(
            f"killed worker {victim.pid} (SIGKILL) after {progress.files:,} files, "
            f"while it was busy with {self.recovery.packages} package(s)"
        )
