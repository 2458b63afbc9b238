"""`stagebell state check`: before a deploy, see that the new program can load every stored state."""

from __future__ import annotations

import asyncio
import logging
import sys

from autogen_core import AgentRuntime
from rich.console import Console

from stagebell.runtime.ops.console import CommandFailed
from stagebell.runtime.ops.reading import WIDTH_OF_A_PIPE, server_to_read
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.setups import Setup, load_setup, set_up
from stagebell.runtime.ops.state_tables import show
from stagebell.runtime.redis.dry_run import StateReport, dry_run
from stagebell.runtime.redis.runtime import RedisRuntime


class Rehearsal(RedisRuntime):
    """A runtime that is set up and never started: it knows agent types and has no connection."""

    async def dry_run(self, url: str, namespace: str, limit: int | None) -> StateReport:
        """Try to load every stored state into agents of these types."""
        return await dry_run(url, namespace, self._catalog, limit=limit)


async def check_states(setup: Setup, url: str, *, namespace: str = "default", limit: int | None = None) -> StateReport:
    """Try to load every stored state of a namespace into agents that `setup` registers; nothing is written.

    The states of open turns (savepoints) are not tried.

    Args:
        setup: registers the agents, as for `stagebell worker`.
        url: of the server.
        namespace: whose states.
        limit: the most states to try of each agent type; None for all.

    Raises:
        ServerUnavailable: the server cannot be reached.
        ServerRefused: it refused the credentials or the commands.
        Exception: whatever `setup` raised.
    """
    runtime = Rehearsal(url, namespace=namespace)
    try:
        await setup(runtime)
        return await runtime.dry_run(url, namespace, limit)
    finally:
        await runtime.close()


def run_state_check(target: str, settings: Settings, *, limit: int | None) -> int:
    """Check the states and print what was found; returns the exit code, 1 when a state would not be loaded.

    Raises:
        CommandFailed: the setup function cannot be used, or there is nothing to look at.
        StagebellError: the server cannot be reached, or refuses.
    """
    report = asyncio.run(_check(target, load_setup(target), settings, limit))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
    show(report, settings.server, console)
    return 1 if report.failing else 0


async def _check(target: str, setup: Setup, settings: Settings, limit: int | None) -> StateReport:
    # AutoGen logs each agent that could not be made, with a traceback; the report says the same in one line.
    logging.getLogger("autogen_core").setLevel(logging.CRITICAL)

    async def checked_setup(runtime: AgentRuntime) -> None:
        await set_up(target, setup, runtime)

    async with server_to_read(settings) as url:
        report = await check_states(checked_setup, url, namespace=settings.namespace, limit=limit)
    if not any(each.has_factory for each in report.types):
        raise CommandFailed(f"{target} registered no agents: call `register` of your agent classes in it")
    return report
