"""See that the server is there before anything is started, and say so while it does not answer."""

from __future__ import annotations

import asyncio

from stagebell.errors import ServerError
from stagebell.runtime.ops.console import CommandFailed, failure_text, say
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.redis.connection import OPEN_SECONDS, Connection

_SILENT_SECONDS = 1.0


async def reach_server(settings: Settings) -> None:
    """Return when the server answers; the embedded server is not asked, since it may not have been started yet.

    Raises:
        CommandFailed: it cannot be reached, or refuses.
    """
    if settings.redis is None:
        return
    text = f"the server at {settings.server} does not answer: trying for {OPEN_SECONDS:g} s in all, then giving up"
    saying = asyncio.get_running_loop().call_later(_SILENT_SECONDS, say, text)
    try:
        connection = await Connection.open(settings.redis, name="stagebell-start")
    except ServerError as error:
        raise CommandFailed(f"the worker cannot start: {failure_text(error)}") from error
    finally:
        saying.cancel()
    connection.close()
