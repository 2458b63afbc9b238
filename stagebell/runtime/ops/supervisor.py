"""Several worker processes on one machine: started, started again when they die, and stopped together.

    start ──▶ all ready ──▶ watch ──first signal──▶ children stop in order ──grace + 3 s──▶ killed
      │                       │  ▲
      │ one cannot start      ▼  │ after a pause, longer each time
      ▼                    one dies
    all stopped, exit code 1

A child that dies cannot give its agents up; the supervisor tells the server, so that others have them at once. It says
so of a process that it has reaped and of no other. When the server does not hear it, the lease runs out by itself.

The supervisor hosts no agents and imports nothing of the user's: it lives longer than what it watches. When
it is killed, its lines to the children close and they stop in order by themselves (see `lifeline`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio import Task
from collections.abc import Sequence

from stagebell.errors import StagebellError
from stagebell.runtime.ops.child import Child
from stagebell.runtime.ops.console import CommandFailed, give, say
from stagebell.runtime.ops.lifeline import SPARE_SECONDS
from stagebell.runtime.ops.reaching import reach_server
from stagebell.runtime.ops.restarts import next_pause
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.stopping import StopRequest
from stagebell.runtime.redis.gone import report_gone

logger = logging.getLogger("stagebell")

_LAST_REPORTS = 1.0  # seconds


def run_supervisor(target: str, settings: Settings, processes: int, options: Sequence[str]) -> None:
    """Keep `processes` workers running until a signal comes; then stop them.

    Args:
        target: MODULE:SETUP, imported by the workers alone.
        settings: handed to the workers in their environment.
        processes: how many workers.
        options: more of the command's options for the workers.

    Raises:
        CommandFailed: a worker could not start the first time, or had to be killed at the end.
    """
    command = [sys.executable, "-m", "stagebell", "worker", target, *options, "--lifeline"]
    supervisor = Supervisor(command, settings, processes)
    supervisor.stop.catch_signals()
    asyncio.run(supervisor.run())


class Supervisor:
    """Keeps a number of children running."""

    def __init__(self, command: Sequence[str], settings: Settings, processes: int) -> None:
        self.stop = StopRequest(before_exit=self._kill_all)
        self._command = command
        self._settings = settings
        self._environment = {**os.environ, **settings.to_environment()}
        self._grace = settings.stop_grace + SPARE_SECONDS
        self._processes = processes
        self._children: dict[int, Child] = {}
        self._complete = False
        self._reports: set[Task[None]] = set()

    async def run(self) -> None:
        """Run until asked to stop.

        Raises:
            CommandFailed: as for `run_supervisor`.
        """
        asked = asyncio.ensure_future(self.stop.wait())
        if not await self._reach_server(asked):
            return
        keepers = [asyncio.ensure_future(self._keep(number, asked)) for number in range(self._processes)]
        try:
            done, _ = await asyncio.wait({asked, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            say(f"stopping {self._processes} worker processes (a second signal ends them at once)")
        except CommandFailed as failed:
            late = await self._stop_all(keepers)
            raise CommandFailed(f"{failed}; {late}" if late else str(failed), code=failed.code) from failed
        except BaseException:
            await self._stop_all(keepers)
            raise
        if late := await self._stop_all(keepers):
            raise CommandFailed(late)

    async def _reach_server(self, asked: asyncio.Future[None]) -> bool:
        """Once for all children, before there are any; False when the stop comes first."""
        reaching = asyncio.ensure_future(reach_server(self._settings))
        await asyncio.wait({asked, reaching}, return_when=asyncio.FIRST_COMPLETED)
        if reaching.cancel():
            return False
        reaching.result()
        return True

    # -- one child

    async def _keep(self, number: int, asked: asyncio.Future[None]) -> None:
        pause = 0.0
        while not self.stop.asked():
            child = self._children[number] = await Child.start(self._command, self._environment)
            if self.stop.asked():
                child.ask_to_stop()
            await child.hear()
            self._note_ready(child)
            if child.error:
                child.ask_to_stop()  # what its user's code holds up must not hold up the reason
            lived = await child.wait()
            self._report_dead(child)
            if self.stop.asked():
                return
            self._refuse_a_bad_start(child)
            pause = next_pause(lived, pause)
            when = f"in {pause:g} s" if pause else "now"
            why = f" ({child.error})" if child.error else ""
            say(f"worker process {child.process.pid} {child.how_it_ended()}{why}: another one starts {when}")
            await asyncio.wait({asked}, timeout=pause)

    def _note_ready(self, child: Child) -> None:
        if not child.worker:
            return
        if self._complete:
            say(f"worker process {child.process.pid} is up, as worker {child.worker}")
            return
        children = list(self._children.values())
        if len(children) == self._processes and all(each.worker and not each.ended for each in children):
            self._complete = True
            pids = ",".join(str(each.process.pid) for each in children)
            give(f"ready  processes={self._processes} pids={pids} types={','.join(child.types)}")

    def _report_dead(self, child: Child) -> None:
        if child.name and not child.error and child.process.returncode != 0:  # with an error it has let go in order
            report = asyncio.get_running_loop().create_task(self._let_others_take_over(child.name))
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)

    async def _let_others_take_over(self, worker: str) -> None:
        settings = self._settings
        place = settings.redis, settings.folder, settings.namespace
        try:
            async with asyncio.timeout(settings.lease):  # later they have it anyway
                ended = await report_gone(*place, worker, lease_ms=int(settings.lease * 1000))
            logger.info("worker %s has died, %d leases of it were ended", worker, ended)
        except (StagebellError, TimeoutError) as error:
            logger.warning("worker %s has died, others wait for the end of its leases: %r", worker, error)

    def _refuse_a_bad_start(self, child: Child) -> None:
        """What cannot start at all will not start the next time; later, the reason may go away by itself."""
        code = child.process.returncode or 0
        if not self._complete and not child.worker and code > 0:
            raise CommandFailed(child.error or f"worker process {child.process.pid} {child.how_it_ended()}", code=code)

    # -- the end

    async def _stop_all(self, keepers: Sequence[asyncio.Future[None]]) -> str:
        """Stop all children; says which had to be killed, if any."""
        self.stop.request()
        for child in self._children.values():
            child.ask_to_stop()
        _, late = await asyncio.wait(keepers, timeout=self._grace)
        killed = [str(child.process.pid) for child in self._children.values() if not child.ended]
        self._kill_all()
        await asyncio.gather(*keepers, return_exceptions=True)
        if self._reports:
            await asyncio.wait(self._reports, timeout=_LAST_REPORTS)
        if late and killed:
            return f"did not stop within {self._grace:g} s and had to be killed: process {', '.join(killed)}"
        return ""

    def _kill_all(self) -> None:
        for child in self._children.values():
            if not child.ended:
                child.kill()
