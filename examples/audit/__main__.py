"""The command line of the audit."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console

from examples.audit import show
from examples.audit.check import differences
from examples.audit.measure import FileReport
from examples.audit.outside import across_processes, in_this_process
from examples.audit.plain import measure_all
from examples.audit.run import Job, Outcome
from examples.audit.tree import SourceFile, source_files, standard_library
from examples.audit.workers import WorkerFailed, workers
from stagebell import DeadLetters
from stagebell.runtime.redis.embedded import EmbeddedServer

INTERRUPTED = 130


class Options(argparse.Namespace):
    """The arguments, with their types."""

    path: Path
    workers: int
    kill: bool
    local: bool
    redis: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the audit.

    Args:
        arguments: the command line, by default the program's.

    Returns:
        The exit code: 0 when every count is right, 1 when one is wrong or a worker failed, 130 when
        interrupted.
    """
    options = _options(arguments)
    out = show.console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM cleans up as Ctrl-C does
    try:
        return _audit(out, options)
    except WorkerFailed as failure:
        out.print(str(failure), style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        out.print("interrupted; workers and server are stopped")
        return INTERRUPTED


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m examples.audit", description="Measures a Python source tree with agents."
    )
    parser.add_argument("--path", type=Path, default=standard_library(), help="tree (default: standard library)")
    parser.add_argument("--workers", type=int, default=3, help="number of worker processes (default: 3)")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="do not kill a worker half way")
    parser.add_argument("--local", action="store_true", help="all agents in this process, no server")
    parser.add_argument("--redis", metavar="URL", help="server to use (default: one of its own, removed afterwards)")
    options = parser.parse_args(arguments, Options())
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    if not options.path.is_dir():
        parser.error(f"{options.path} is not a folder")
    return options


def _audit(out: Console, options: Options) -> int:
    files = source_files(options.path.resolve())
    if not files:
        out.print(f"there is no .py file below {options.path}")
        return 1
    packages = len({file.package for file in files})
    out.print(f"{options.path}: {len(files):,} files in {packages} packages", markup=False, soft_wrap=True)
    start = time.monotonic()
    plain = _plain(out, files)
    plain_seconds = time.monotonic() - start
    outcome = asyncio.run(_locally(out, files) if options.local else _distributed(out, files, options))
    show.show_outcome(out, outcome, plain_seconds)
    wrong = differences(plain, outcome.report, outcome.ranking)
    show.show_check(out, len(files), wrong)
    return 1 if wrong else 0


def _plain(out: Console, files: Sequence[SourceFile]) -> dict[SourceFile, FileReport]:
    plain: dict[SourceFile, FileReport] = {}
    with show.Bar(out, "plain computation", len(files)) as bar:
        for file, measures in measure_all(files):
            plain[file] = measures
            bar.show(len(plain))
    return plain


async def _locally(out: Console, files: Sequence[SourceFile]) -> Outcome:
    async with in_this_process() as outside:
        with show.Bar(out, "agents, this process", len(files)) as bar:
            return await Job(outside, files, bar.show, bar.note).run()


async def _distributed(out: Console, files: Sequence[SourceFile], options: Options) -> Outcome:
    namespace = f"audit-{os.getpid()}-{int(time.time())}"
    kill = options.kill and options.workers > 1  # somebody must be left to take over
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        async with (
            _server(options.redis, Path(folder)) as url,
            workers(options.workers, url, namespace, Path(folder)) as running,
            across_processes(url, namespace) as outside,
        ):
            pids = ", ".join(str(worker.pid) for worker in running)
            out.print(f"{len(running)} worker processes are ready: {pids}")
            with show.Bar(out, "agents, across workers", len(files)) as bar:
                outcome = await Job(outside, files, bar.show, bar.note, running, kill).run()
            await _tell_dead_letters(out, url, namespace)
            return outcome


async def _tell_dead_letters(out: Console, url: str, namespace: str) -> None:
    """What was set aside is missing in the counts; the server that has it may end with this run."""
    async with DeadLetters(url, namespace=namespace) as letters:
        async for letter in letters.walk():
            out.print(f"set aside after {letter.attempts} attempts: {letter.agent}: {letter.reason}", markup=False)


@asynccontextmanager
async def _server(url: str | None, folder: Path) -> AsyncGenerator[str, None]:
    """The server of that URL, or one of this run's own that ends with it."""
    if url is not None:
        yield url
        return
    server = await EmbeddedServer.acquire(folder / "server")
    try:
        yield server.url
    finally:
        server.release()


if __name__ == "__main__":
    sys.exit(main())
