"""Worker processes that a test starts, kills and freezes."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
READY_SECONDS = 30.0


class Worker:
    """One worker process, started; `await ready()` before relying on it."""

    def __init__(
        self,
        url: str,
        namespace: str,
        setups: str,
        log: Path,
        *,
        folder: Path | None = None,
        **options: float,
    ) -> None:
        self.log = log
        command = [sys.executable, "-m", "tests.failure.worker", url, namespace, setups]
        command += [f"{name}={value}" for name, value in options.items()]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
        if folder is not None:
            environment["STAGEBELL_FOLDER"] = str(folder)
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._ready = False

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """True while the process has not ended."""
        return self.process.poll() is None

    async def ready(self) -> Worker:
        """Wait until it says that it takes messages."""
        if not self._ready:
            await asyncio.to_thread(self._await_ready)
            self._ready = True
        return self

    def _await_ready(self) -> None:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            readable = selector.select(READY_SECONDS)
        line = self.process.stdout.readline().strip() if readable else b"nothing"
        assert line == b"ready", f"the worker said {line!r}: {self.errors()}"

    def kill(self) -> float:
        """SIGKILL; returns the moment (monotonic seconds)."""
        moment = time.monotonic()
        self.process.kill()
        self.process.wait(10)
        return moment

    def terminate(self) -> float:
        """SIGTERM; returns the moment (monotonic seconds)."""
        moment = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return moment

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    async def ended(self, within: float = 10.0) -> int:
        """Wait for its end; returns the exit status."""
        return await asyncio.to_thread(self.process.wait, within)

    async def stop(self) -> int:
        """Let it end in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.ended()

    def errors(self, lines: int = 15) -> str:
        """The last lines it wrote to its standard error."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])

    def reap(self) -> None:
        """End it, whatever state it is in."""
        if self.alive:
            self.process.kill()
            self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Workers:
    """Starts the workers of one test, and ends them all after it."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.url = url
        self.namespace = namespace
        self.started: list[Worker] = []
        self._folder = folder

    def spawn(self, setups: str, *, url: str = "", folder: Path | None = None, **options: Any) -> Worker:
        """Start a worker; keyword arguments are those of RedisRuntime."""
        log = self._folder / f"worker-{len(self.started)}.log"
        worker = Worker(url or self.url, self.namespace, setups, log, folder=folder, **options)
        self.started.append(worker)
        return worker

    async def start(self, setups: str, count: int = 1, **options: Any) -> list[Worker]:
        """Start workers and wait until they are ready."""
        workers = [self.spawn(setups, **options) for _ in range(count)]
        await asyncio.gather(*(worker.ready() for worker in workers))
        return workers

    def reap(self) -> None:
        """End all."""
        for worker in self.started:
            worker.reap()

    def report(self) -> str:
        """The end of what each wrote to its standard error."""
        return "\n".join(f"-- worker {worker.pid}\n{worker.errors()}" for worker in self.started)
