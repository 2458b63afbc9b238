"""Where a worker's log goes: to standard error, for the service manager to keep."""

from __future__ import annotations

import logging

from stagebell.runtime.ops.console import USAGE, CommandFailed

_LEVELS = ("debug", "info", "warning", "error")


def log_to_stderr(level: str) -> None:
    """Log from this level on.

    Raises:
        CommandFailed: there is no such level.
    """
    if level.lower() not in _LEVELS:
        raise CommandFailed(f"--log-level must be one of {', '.join(_LEVELS)}, not {level!r}", code=USAGE)
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    # AutoGen logs every message with its content at `info`: only who asks for everything gets that.
    if level.lower() == "info":
        logging.getLogger("autogen_core").setLevel(logging.WARNING)
