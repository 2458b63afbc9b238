"""The command `stagebell` as a process of its own, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 20.0
STOP_SECONDS = 10.0

SHOP = """
import asyncio, os
from pathlib import Path

from autogen_core import MessageContext, RoutedAgent, TypeSubscription, message_handler
from tests.support.agents import Ask, Note

class Clerk(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("clerk")

    @message_handler
    async def on_ask(self, message: Ask, ctx: MessageContext) -> str:
        if message.text.startswith("wait"):
            Path("waiting").touch()
            while not Path("go").exists():
                await asyncio.sleep(0.02)
        return f"{os.getpid()} {message.text}"

    @message_handler
    async def on_note(self, message: Note, ctx: MessageContext) -> None:
        with open("notes", "a") as notes:
            notes.write(f"{self.id.key} {message.text} {ctx.message_id}\\n")

async def setup(runtime) -> None:
    await Clerk.register(runtime, "clerk", Clerk)
    await runtime.add_subscription(TypeSubscription("orders", "clerk"))

async def fails(runtime) -> None:
    raise ValueError("the till\\nis empty")

async def nothing(runtime) -> None:
    pass

def plain(runtime) -> None:
    pass
"""


class Command:
    """One run of the command; what it says goes to two files."""

    def __init__(self, folder: Path, number: int, environment: Mapping[str, str], arguments: tuple[str, ...]) -> None:
        self.out_file, self.error_file = folder / f"out-{number}", folder / f"err-{number}"
        with self.out_file.open("wb") as out, self.error_file.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stagebell", *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self.out_file.read_text("utf-8", "replace")

    @property
    def errors(self) -> str:
        return self.error_file.read_text("utf-8", "replace")

    async def ready(self) -> dict[str, str]:
        """Wait for the line that says so; gives its parts."""

        def found() -> str | None:
            assert self.process.poll() is None, f"ended before it was ready: {self.errors}"
            return next((line for line in self.out.splitlines() if line.startswith("ready ")), None)

        line: str = await eventually(found, within=START_SECONDS)
        return dict(part.split("=", 1) for part in line.split()[1:])

    async def ended(self, within: float = STOP_SECONDS) -> int:
        """Wait for its end; gives the exit code."""
        await eventually(lambda: self.process.poll() is not None, within=within)
        return self.process.returncode

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.ended()


class Shell:
    """A folder with a module of agents, and the commands that run there."""

    def __init__(self, folder: Path, url: str, namespace: str) -> None:
        (folder / "shop.py").write_text(SHOP)
        self.folder = folder
        self.commands: list[Command] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STAGEBELL_")}
        self.environment = {
            **kept,
            "PYTHONPATH": str(ROOT),
            "STAGEBELL_REDIS": url,
            "STAGEBELL_NAMESPACE": namespace,
        }

    def start(self, *arguments: str) -> Command:
        command = Command(self.folder, len(self.commands), self.environment, arguments)
        self.commands.append(command)
        return command

    def run(self, *arguments: str, feed: str = "", **changes: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end; `feed` is its standard input, `changes` are of the environment."""
        done = subprocess.run(
            [sys.executable, "-m", "stagebell", *arguments],
            cwd=self.folder,
            env={**self.environment, **changes},
            input=feed.encode(),
            capture_output=True,
            timeout=30,
            check=False,
        )
        out, errors = done.stdout.decode(), done.stderr.decode()
        (self.folder / f"said-{len(list(self.folder.glob('said-*')))}").write_text(out + errors)
        return subprocess.CompletedProcess(done.args, done.returncode, out, errors)

    def close(self) -> None:
        for command in self.commands:
            if command.process.poll() is None:
                command.process.kill()
            command.process.wait()

    def said(self) -> str:
        """Everything that all commands have said."""
        files = [path for path in self.folder.iterdir() if path.name.startswith(("out-", "err-", "said-"))]
        return "\n".join(path.read_text("utf-8", "replace") for path in files)


def is_running(pid: int) -> bool:
    """True while there is such a process that has not ended (a zombie has)."""
    status = Path(f"/proc/{pid}/stat")
    if status.parent.parent.is_dir() and not status.exists():
        return False
    if status.exists():
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
