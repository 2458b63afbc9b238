"""One worker process: it sets agents up, hosts them, and stops in order when told to."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from stagebell.runtime.ops.console import CommandFailed, failure_text, give, one_line, say, say_traceback
from stagebell.runtime.ops.lifeline import Lifeline
from stagebell.runtime.ops.reaching import reach_server
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.setups import Setup, load_setup, set_up
from stagebell.runtime.ops.stopping import StopRequest
from stagebell.runtime.redis.runtime import RedisRuntime


@dataclass(frozen=True, slots=True)
class Ready:
    """What a worker says when it takes messages."""

    worker: str
    pid: int
    types: list[str]

    def __str__(self) -> str:
        return f"ready  worker={self.worker} pid={self.pid} types={','.join(self.types)}"


class Audience:
    """Who hears how it goes: the terminal, or the service manager's log."""

    async def reach_server(self, settings: Settings) -> None:
        """See that the server is there; raises CommandFailed when it is not."""
        await reach_server(settings)

    def hear_name(self, worker: str) -> None:
        """It is about to begin."""

    def hear_ready(self, ready: Ready) -> None:
        """It takes messages."""
        give(str(ready))

    def hear_failure(self, failed: CommandFailed) -> None:
        """It cannot start; what it has begun ends now."""

    def hear_stopping(self, grace: float) -> None:
        """It was asked to stop."""
        say(f"stopping; running handlers get {grace:g} s (a second signal ends them at once)")


class SupervisorAudience(Audience):
    """The supervisor, which tells its user."""

    def __init__(self, line: Lifeline, conceal: Callable[[str], str]) -> None:
        self._line = line
        self._conceal = conceal

    async def reach_server(self, settings: Settings) -> None:
        """It has done that itself."""

    def hear_name(self, worker: str) -> None:
        self._line.report(name=worker)

    def hear_ready(self, ready: Ready) -> None:
        self._line.report(worker=ready.worker, types=ready.types)

    def hear_failure(self, failed: CommandFailed) -> None:
        """It need not wait until all has ended that was begun."""
        self._line.report(error=self._conceal(str(failed)))

    def hear_stopping(self, grace: float) -> None:
        """It asked for that itself."""


class WorkerRuntime(RedisRuntime):
    """A runtime that can say what it is; `on_named` hears its name before anything is in the server."""

    on_named: Callable[[str], None] | None = None

    def _named(self, worker: str) -> None:
        if self.on_named is not None:
            self.on_named(worker)

    def describe(self) -> Ready:
        """Its name in the namespace, and the agent types it hosts."""
        return Ready(self._running("describe").client.name, os.getpid(), sorted(self._catalog.types))


def run_worker(target: str, settings: Settings) -> None:
    """Host the agents that `target` sets up until a signal comes; then stop in order.

    Raises:
        CommandFailed: it cannot start.
    """
    stop = StopRequest()
    stop.catch_signals()
    _run(target, settings, stop, Audience())


def run_supervised_worker(target: str, settings: Settings, line: Lifeline, *, show_traceback: bool) -> int:
    """The same for a child of a supervisor, which hears over the line how it goes; returns the exit code."""
    stop = StopRequest()
    stop.catch_signals()
    line.watch(stop.request, settings.stop_grace)
    try:
        _run(target, settings, stop, SupervisorAudience(line, settings.conceal))
    except CommandFailed as failed:
        if show_traceback and failed.__cause__ is not None:
            say_traceback(failed.__cause__, settings.conceal)
        line.report(error=settings.conceal(str(failed)))
        return failed.code
    return 0


def _run(target: str, settings: Settings, stop: StopRequest, audience: Audience) -> None:
    setup = load_setup(target)
    if not stop.asked():
        asyncio.run(_serve(target, setup, settings, stop, audience))


async def _serve(target: str, setup: Setup, settings: Settings, stop: StopRequest, audience: Audience) -> None:
    runtime = WorkerRuntime(
        settings.redis,
        namespace=settings.namespace,
        folder=settings.folder,
        cancel_grace=settings.cancel_grace,
        max_call_depth=settings.max_call_depth,
        warn_after=settings.warn_after,
        **settings.options,
    )
    runtime.on_named = audience.hear_name
    asked = asyncio.ensure_future(stop.wait())
    starting = asyncio.ensure_future(_start(target, setup, runtime, settings, audience))
    try:
        await asyncio.wait({asked, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            audience.hear_ready(starting.result())
            await asked
            audience.hear_stopping(settings.stop_grace)
        else:
            starting.cancel()
            await asyncio.wait({starting})
    except CommandFailed as failed:
        audience.hear_failure(failed)
        with suppress(CommandFailed):  # why it cannot start says more than how it ended
            await _close(runtime)
        raise
    finally:
        asked.cancel()
    await _close(runtime)


async def _start(target: str, setup: Setup, runtime: WorkerRuntime, settings: Settings, audience: Audience) -> Ready:
    await audience.reach_server(settings)
    # Set up before the start: nothing is announced, and nothing arrives, until all of it is there.
    await set_up(target, setup, runtime)
    try:
        await runtime.start()
    except Exception as error:
        raise CommandFailed(f"the worker cannot start: {failure_text(error)}") from error
    ready = runtime.describe()
    if not ready.types:
        raise CommandFailed(f"{target} registered no agents: call `register` of your agent classes in it")
    # What was loaded stays until the end: the collector, which else walks all of it again and again, may leave it out.
    gc.collect()
    gc.freeze()
    return ready


async def _close(runtime: WorkerRuntime) -> None:
    try:
        await runtime.close()
    except Exception as error:
        text = f"the worker stopped, but not in order: {type(error).__name__}: {one_line(error)}"
        raise CommandFailed(text) from error
