"""Worker processes of one run: started, watched, killed, stopped, and never left behind."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
READY_SECONDS = 60.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05
_LOG_LINES = 20


class WorkerFailed(Exception):
    """A worker ended by itself, or was not ready in time."""


@dataclass
class Worker:
    """One worker process; what it says goes to its log file."""

    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def kill(self) -> None:
        """Ends it with SIGKILL: it can do nothing about it, and nothing for it."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def is_ready(self) -> bool:
        """Whether it has said that it takes messages."""
        return re.search(r"\bready\b", self.log.read_text(errors="replace")) is not None

    def check(self) -> None:
        """Raises WorkerFailed with the end of its log when it ended and nobody killed it."""
        if self.process.poll() is not None and not self.killed:
            raise self.failure(f"ended with exit code {self.process.returncode}")

    def failure(self, what: str) -> WorkerFailed:
        """Returns the error that says what happened, with the end of the log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return WorkerFailed("\n  ".join([f"worker {self.pid} {what}; the end of its log:", *lines]))


@asynccontextmanager
async def workers(count: int, url: str, namespace: str, logs: Path) -> AsyncGenerator[list[Worker], None]:
    """Runs worker processes that host the audit's agents.

    Args:
        count: how many.
        url: of the Redis or Valkey server.
        namespace: the name that their messages are kept under.
        logs: a folder for their logs.

    Yields:
        The workers, all ready. On the way out they are stopped, by force if they do not listen.

    Raises:
        WorkerFailed: one ended, or was not ready within a minute.
    """
    started: list[Worker] = []
    try:
        started.extend(_start(url, namespace, logs / f"worker-{number}.log") for number in range(count))
        await _all_ready(started)
        yield started
    finally:
        _stop(started)


def _start(url: str, namespace: str, log: Path) -> Worker:
    command = [sys.executable, "-m", "stagebell", "worker", "examples.audit.setup:setup"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--redis", url, "--namespace", namespace],
            cwd=PROJECT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Worker(process, log)


async def _all_ready(started: list[Worker]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    for worker in started:
        while not worker.is_ready():
            worker.check()
            if time.monotonic() > deadline:
                raise worker.failure(f"was not ready within {READY_SECONDS:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)


def _stop(started: list[Worker]) -> None:
    """Asks all, then waits for all; blocks on purpose, so that no second Ctrl-C loses a worker half way."""
    for worker in started:
        worker.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in started:
        with _killed_if_interrupted(worker):
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()


@contextmanager
def _killed_if_interrupted(worker: Worker) -> Generator[None, None, None]:
    try:
        yield
    except KeyboardInterrupt:
        worker.kill()
