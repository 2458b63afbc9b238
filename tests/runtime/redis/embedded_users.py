"""Users of the embedded server, here and in other processes, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from redis import Redis
from redis.exceptions import RedisError

from stagebell.runtime.redis.embedded import EmbeddedServer

# A process that uses the folder's server: says which one it got, then answers each line with what PING gave.
USER = """
import sys
from pathlib import Path
from redis import Redis
from stagebell.runtime.redis.embedded import EmbeddedServer

server = EmbeddedServer.acquire_blocking(Path(sys.argv[1]))
client = Redis.from_url(server.url)
print(client.info("server")["run_id"], flush=True)
for line in sys.stdin:
    print(client.ping(), flush=True)
"""


class User:
    """A process of its own, in a process group of its own, that uses the server of a folder."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def hears(self) -> str:
        assert self.process.stdout
        readable, _, _ = select.select([self.process.stdout], [], [], 40)
        assert readable, "the user said nothing for 40 seconds"
        return self.process.stdout.readline().strip()

    def ping(self) -> str:
        assert self.process.stdin
        self.process.stdin.write("ping\n")
        return self.hears()


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + seconds, f"not within {seconds} s"
        select.select([], [], [], 0.01)


def is_free(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def listed(pid: int, column: str) -> str:
    return subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True).stdout


def process_is_gone(pid: int) -> bool:
    return listed(pid, "stat").strip()[:1] in ("", "Z")


def parent_of(pid: int) -> int:
    return int(listed(pid, "ppid"))


def socket_of(server: EmbeddedServer) -> Path:
    return Path(unquote(urlsplit(server.url).path))


def client_of(server: EmbeddedServer) -> Redis:
    return Redis(unix_socket_path=str(socket_of(server)))


def info(server: EmbeddedServer) -> dict[str, Any]:
    with client_of(server) as client:
        found: dict[str, Any] = client.info("server")
        return found


def pid_of(server: EmbeddedServer) -> int:
    return int(info(server)["process_id"])


def can_set(address: Path, key: str, value: str) -> bool:
    with contextlib.suppress(RedisError), Redis(unix_socket_path=str(address)) as client:
        return bool(client.set(key, value))
    return False


@contextlib.contextmanager
def used(folder: Path | None) -> Generator[EmbeddedServer]:
    server = EmbeddedServer.acquire_blocking(folder)
    try:
        yield server
    finally:
        server.release()
