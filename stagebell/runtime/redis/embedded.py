"""The server that is there without a URL: one for each project folder, shared, started and ended as needed.

    user ──shared lock──► users.lock ◄──waits for the exclusive lock── watcher ──parent of──► server

Who is authoritative: the kernel, by locks (flock) on files of the folder. No process is found by its number.

    users.lock    shared by all users of the server; held exclusively by a watcher that ends it
    watcher.lock  held by the watcher as long as it lives, and before that by the one user who starts it
    server.lock   held by the server as long as it lives
    address       the path of the server's socket, valid while watcher.lock is held
    appendonlydir, server.log    the data, and what the server and its watcher had to say

What holds at all times:
- At most one server writes to the folder: a server starts only with server.lock in hand.
- Whoever holds the shared lock can rely on the server: a watcher ends it only with the exclusive lock in
  hand, and keeps that until it is gone itself.
- At most one user starts a server: the one who got watcher.lock, which passes on to the watcher. The others
  wait until the server answers or the lock is free again.
- Server and watcher are in a session of their own: Ctrl-C or a hang-up in a user's terminal does not reach
  them.
- Only this user of the machine reaches the server: TCP is off, the socket's folder has mode 0700.

What each failure does:
- The last user ends, or is killed: the kernel frees its lock, the watcher wakes and ends the server.
- The server is killed: its watcher ends. Commands of its users fail, and the next `acquire`, by any of them,
  starts a server on the same data, at the same socket.
- The watcher is killed: on Linux the kernel then ends the server (PR_SET_PDEATHSIG, an orderly end);
  elsewhere the server goes on, and the next `acquire` ends it before it starts another.
- A user is killed while it starts a server: the watcher finds no user and ends the server.
- The machine stops: at most the last second of writes is lost (appendfsync everysec).
- The folder is deleted under a running server: its users go on and nothing of it is kept; a user who comes
  then gets a new folder and, as sockets are named after the folder's inode, a server of its own.

Limits: flock must work, so the folder belongs on a local disk. A child made by fork without exec
(multiprocessing's "fork") inherits the lock and counts as a user until it ends; programs started by exec do
not. A service manager that ends all processes of a service also ends the server that this service started,
under the users of other services: for those, run a server on its own and pass its URL. Windows has no flock.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import weakref
from io import BufferedWriter
from pathlib import Path
from urllib.parse import quote

from stagebell.errors import ServerNotFound, ServerUnavailable
from stagebell.runtime.redis import embedded_watcher as watcher
from stagebell.runtime.redis.embedded_socket import socket_path
from stagebell.runtime.redis.server_binary import find_server

if sys.platform != "win32":
    import fcntl

DEFAULT_TIMEOUT = 20.0
LOG_BYTES = 1024 * 1024


class EmbeddedServer:
    """A running server of a project folder, kept alive by this object.

    `url` is its address as redis-py takes it, `folder` the absolute path of the folder with its data. Keep
    the object as long as you use the server: like a file, it lets go when released or no longer referenced.
    """

    url: str
    folder: Path

    def __init__(self, address: str, folder: Path, lock: int) -> None:
        """For `acquire` alone: takes over `lock`, the descriptor that holds the shared lock."""
        self.url = f"unix://{quote(address)}?db=0"
        self.folder = folder
        # By closing, never by LOCK_UN: a forked child that releases must not take the lock from its parent.
        self._let_go = weakref.finalize(self, os.close, lock)

    @classmethod
    async def acquire(cls, folder: Path | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> EmbeddedServer:
        """Use the folder's server; start it if it does not run.

        Args:
            folder: where its data is, made if need be. Default: the environment variable STAGEBELL_FOLDER,
                else `.stagebell` in the current directory.
            timeout: seconds until the server must answer.

        Returns:
            The server, which answers commands now and lives until this object and all other users let go.

        Raises:
            ServerNotFound: no server program on this machine.
            ServerUnavailable: it did not start or answer in time, or the folder cannot be used.
        """
        return await asyncio.to_thread(cls.acquire_blocking, folder, timeout=timeout)

    @classmethod
    def acquire_blocking(cls, folder: Path | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> EmbeddedServer:
        """The same as `acquire`, for code that runs without an event loop."""
        if sys.platform == "win32":
            raise ServerNotFound(
                "the embedded server needs Linux or macOS: on Windows run Valkey or Redis in WSL or in "
                "a container and pass its URL, such as redis://localhost:6379"
            )
        place = _chosen(folder)
        try:
            address, lock = _join(place, time.monotonic() + timeout)
        except (ServerNotFound, ServerUnavailable):
            raise
        except OSError as problem:
            text = f"the embedded server cannot use its folder {place}: {problem}"
            raise ServerUnavailable(text) from problem
        return cls(address, place, lock)

    def release(self) -> None:
        """Let go of the server. The last user's release ends it; a second release does nothing."""
        self._let_go()


def _chosen(folder: Path | None) -> Path:
    named = os.environ.get("STAGEBELL_FOLDER")
    return (folder or Path(named or ".stagebell")).expanduser().absolute()


def _join(place: Path, deadline: float) -> tuple[str, int]:
    """Become a user of the folder's server; returns its socket and the descriptor with the shared lock."""
    _prepare(place)
    lock = watcher.open_lock(place, watcher.USERS_LOCK)
    try:
        if not watcher.wait_for(lambda: watcher.lock_now(lock, fcntl.LOCK_SH), deadline):
            raise ServerUnavailable(
                f"the embedded server of {place} is ending and takes too long: see {place / watcher.LOG}"
            )
        return _running(place, deadline), lock
    except BaseException:
        os.close(lock)
        raise


def _prepare(place: Path) -> None:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = place / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")


def _running(place: Path, deadline: float) -> str:
    """The socket of the running server, which is started if nobody watches one."""
    lock = watcher.open_lock(place, watcher.WATCHER_LOCK)
    try:
        while not watcher.lock_now(lock, fcntl.LOCK_EX):
            address = watcher.read_address(place)
            if address and watcher.answers(address):
                return address
            if time.monotonic() >= deadline:
                raise ServerUnavailable(
                    f"the embedded server of {place} runs but does not answer at {address or 'any socket'}: "
                    f"see {place / watcher.LOG}"
                )
            time.sleep(watcher.POLL_SECONDS)
        return _started(place, lock, deadline)
    finally:
        os.close(lock)


def _started(place: Path, lock: int, deadline: float) -> str:
    """Start a watcher, which starts the server, and hand it the watcher's lock."""
    address, program = socket_path(place), find_server()
    seconds = max(deadline - time.monotonic(), 0.1)
    with _open_log(place) as log:
        report = _run_watcher([str(place), address, str(program), str(seconds)], lock, log.fileno(), seconds)
    if report != watcher.READY:
        text = f"the embedded server of {place} did not start: {report}; see {place / watcher.LOG}"
        raise ServerUnavailable(text)
    return address


def _open_log(place: Path) -> BufferedWriter:
    log = place / watcher.LOG
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.old"))
    return log.open("ab")


def _run_watcher(arguments: list[str], lock: int, log: int, seconds: float) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", watcher.__file__, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
            timeout=seconds + watcher.REPLY_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "its watcher did not report in time"
    return done.stdout.decode(errors="replace") or "its watcher ended without a report"
