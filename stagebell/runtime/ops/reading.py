"""What the commands that only read share."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from stagebell.runtime.ops.console import CommandFailed
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.redis.client import find_server

WIDTH_OF_A_PIPE = 200
"""Into a pipe or a file nothing is cut off at the width of a terminal."""


@asynccontextmanager
async def server_to_read(settings: Settings) -> AsyncGenerator[str]:
    """The server's URL; the embedded server of a folder is in use meanwhile, and no folder is made for it.

    Raises:
        CommandFailed: there is no folder.
        StagebellError: the embedded server does not start.
    """
    if settings.redis is None:
        folder = settings.folder or Path(".stagebell")
        if not folder.is_dir():
            raise CommandFailed(f"there is no folder {folder}: go to the project's folder, or give --redis")
    url, server = await find_server(settings.redis, settings.folder)
    try:
        yield url
    finally:
        if server is not None:
            server.release()
