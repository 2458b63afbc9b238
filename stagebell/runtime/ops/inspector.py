"""`stagebell ps`: a namespace as tables for people, or as JSON for programs."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console

from stagebell.runtime.ops.console import give
from stagebell.runtime.ops.reading import WIDTH_OF_A_PIPE, server_to_read
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.tables import show
from stagebell.runtime.redis.overview import Overview


def run_ps(settings: Settings, *, every_partition: bool, as_json: bool) -> None:
    """Read the namespace and print it.

    Raises:
        CommandFailed: there is nothing to look at.
        StagebellError: the server cannot be reached, or refuses.
    """
    overview = asyncio.run(_read(settings))
    if as_json:
        give(json.dumps(to_json(overview, settings.server), indent=2, ensure_ascii=False))
        return
    width = None if sys.stdout.isatty() else WIDTH_OF_A_PIPE
    console = Console(highlight=False, width=width)
    show(overview, settings.server, console, every_partition=every_partition)


def to_json(overview: Overview, server: str) -> dict[str, Any]:
    """The overview as plain JSON, with the sums of each agent type."""
    types = [{**asdict(view), **view.sums()} for view in overview.types]
    return {"server": server, **asdict(overview), "types": types}


async def _read(settings: Settings) -> Overview:
    async with server_to_read(settings) as url:
        return await Overview.read(url, settings.namespace, lease_ms=int(settings.lease * 1000))
