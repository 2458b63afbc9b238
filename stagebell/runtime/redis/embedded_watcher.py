"""The watcher: a small process beside the embedded server that ends it when nobody uses it.

    starting ── the server answers ──► watching ── no user left ──► ending ── the server ended ──► gone
        │                                 │
        └────────── the server ended, for whatever reason ───────────────────────────────────────► gone

A user starts it with the watcher's lock in hand (`embedded.py` has the whole picture). It leaves the user's
session, starts the server as its child and reports once on its standard output: `ready`, or what went wrong.

It runs as a file, by `python -I -S`, and imports the standard library only, to start in milliseconds and stay
small. Its current directory is the folder, and all names it uses there are relative: should the folder be
deleted under a running server, it cannot touch the files of a new folder of that name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

if sys.platform != "win32":
    import fcntl

USERS_LOCK = "users.lock"
WATCHER_LOCK = "watcher.lock"
SERVER_LOCK = "server.lock"
ADDRESS = "address"
LOG = "server.log"
READY = "ready"

POLL_SECONDS = 0.01
REPLY_SECONDS = 1.0
STOP_SECONDS = 10.0
PR_SET_PDEATHSIG = 1


class StartFailed(Exception):
    """The server did not come up; the text goes to the user who asked for it."""


def open_lock(folder: Path, name: str) -> int:
    """Open a lock file of the folder and return its descriptor, which children do not inherit."""
    return os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)


def lock_now(lock: int, operation: int) -> bool:
    """Take the lock if it is free (`operation`: fcntl.LOCK_SH or fcntl.LOCK_EX) and say whether it was."""
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for(condition: Callable[[], bool], deadline: float) -> bool:
    """Wait until the condition holds or the monotonic clock reaches `deadline`, and say whether it holds."""
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def ask(address: str, command: bytes) -> bytes:
    """Send one command on a connection of its own; returns the head of the reply, empty if there was none."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(REPLY_SECONDS)
        try:
            connection.connect(address)
            connection.sendall(command + b"\r\n")
            return connection.recv(64)
        except OSError:
            return b""


def answers(address: str) -> bool:
    """Whether a server at the socket `address` answers commands and has loaded its data."""
    reply = ask(address, b"PING")
    return bool(reply) and not reply.startswith(b"-LOADING")


def read_address(folder: Path) -> str:
    """The socket of the folder's server as its watcher wrote it down, or an empty string."""
    try:
        return (folder / ADDRESS).read_text()
    except FileNotFoundError:
        return ""


def main() -> None:
    """Start the server and watch it.

    Arguments of the command line: folder, socket path, server program, seconds until the start has failed.
    """
    folder, address, program, seconds = sys.argv[1:]
    if os.fork():
        # The user waits for this first process alone: the watcher is not its child and leaves it no zombie.
        os._exit(0)
    _leave_the_user(folder)
    try:
        users = open_lock(Path(), USERS_LOCK)
        server = _start(address, program, time.monotonic() + float(seconds))
    except (StartFailed, OSError) as failure:
        _report(str(failure))
        sys.exit(1)
    _report(READY)
    _watch(server, users)


def _leave_the_user(folder: str) -> None:
    os.chdir(folder)
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)


def _report(text: str) -> None:
    with contextlib.suppress(OSError):  # the user is gone; if it was the only one, the server ends at once
        os.write(1, text.encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _start(address: str, program: str, deadline: float) -> subprocess.Popen[bytes]:
    lock = open_lock(Path(), SERVER_LOCK)
    _end_orphan(lock, deadline)
    Path(ADDRESS).write_text(address)
    server = _spawn(address, program, lock)
    os.close(lock)  # from here the server alone holds it, so that it tells whether the server lives
    if not wait_for(lambda: server.poll() is not None or answers(address), deadline):
        server.terminate()
        raise StartFailed("it did not answer in time; with much data to load, allow a longer timeout")
    if server.returncode is not None:
        raise StartFailed(f"{program} ended with code {server.returncode}")
    return server


def _end_orphan(lock: int, deadline: float) -> None:
    """Make sure that no server writes to the folder: one whose watcher was killed may still be there."""
    if lock_now(lock, fcntl.LOCK_EX):
        return
    ask(read_address(Path()), b"SHUTDOWN NOSAVE")  # its append-only file is written and synced all the same
    if not wait_for(lambda: lock_now(lock, fcntl.LOCK_EX), deadline):
        raise StartFailed("a server whose watcher was killed still uses the folder and does not end")


def server_environment() -> dict[str, str]:
    """The environment in which a server program is started."""
    # Valkey ends at once when the user's locale is not installed. The wheel's is built without jemalloc: with glibc's
    # own caches made larger, a server that has taken many messages spends a tenth less on each.
    caches = "glibc.malloc.tcache_max=65536:glibc.malloc.tcache_count=2000"
    return {"GLIBC_TUNABLES": caches, **os.environ, "LC_ALL": "C"}


def _spawn(address: str, program: str, lock: int) -> subprocess.Popen[bytes]:
    settings = {
        "port": "0",
        "unixsocket": address,
        "unixsocketperm": "700",
        "dir": ".",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "no",
    }
    arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
    with open(LOG, "ab") as log:
        return subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=server_environment(),
            pass_fds=(lock,),
            preexec_fn=_end_with_parent(os.getpid()),
        )


def _end_with_parent(parent: int) -> Callable[[], None] | None:
    """What the server's process does before the server: ask the kernel to end it with its watcher."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # the watcher died before the kernel was asked
            os._exit(1)

    return before_exec


def _watch(server: subprocess.Popen[bytes], users: int) -> None:
    threading.Thread(target=_end_when_unused, args=(server, users), daemon=True).start()
    server.wait()
    os._exit(0)  # lets go of all locks at once, whatever the thread is doing


def _end_when_unused(server: subprocess.Popen[bytes], users: int) -> None:
    try:
        # Until the last user has let go or died. Kept until this process ends, for which a new user waits.
        fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        Path(ADDRESS).unlink(missing_ok=True)
        _stop(server)


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    main()
