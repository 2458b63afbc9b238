"""What is kept of a run that failed: its seed, what was sent and answered, and the server's append-only file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.failure.history import Load
from tests.support.servers import Server

FOLDER = Path(__file__).resolve().parents[2] / ".failures"


@contextmanager
def kept_on_failure(name: str, server: Server, loads: Sequence[Load]) -> Iterator[None]:
    """Copy the server's folder and the history of the loads to `.failures/NAME` when the block raises."""
    try:
        yield
    except BaseException:
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(server.dir, folder, ignore=shutil.ignore_patterns("*.sock"))
        history = [
            {"seed": load.seed, "sent": load.sent, "calls": load.calls, "replies": load.replies, "wrong": load.wrong}
            for load in loads
        ]
        (folder / "history.json").write_text(json.dumps(history, indent=1), encoding="utf-8")
        print(f"the history and the append-only file of this run are in {folder}")
        raise
