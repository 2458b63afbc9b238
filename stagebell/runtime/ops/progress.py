"""How far a long publish is, on standard error when somebody watches."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from stagebell.runtime.ops.console import say


class Progress(AbstractContextManager["Progress"]):
    """Says nothing but what is told; what a pipe or a log file gets."""

    def advance(self, size: int, published: int, bad: int) -> None:
        """So many bytes more of the input are done."""

    def say(self, text: str) -> None:
        """Tell the user something."""
        say(text)

    def close(self) -> None:
        """There is no more."""

    def __exit__(self, *error: object) -> None:
        self.close()


class _Live(Progress):
    """A bar on a terminal, when the size of the input is known, and the counts."""

    def __init__(self, size: int | None) -> None:
        bar = [BarColumn()] if size else []
        self._bar = Bar(
            *bar,
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=size)
        self._bar.start()

    def advance(self, size: int, published: int, bad: int) -> None:
        text = f"{published:,} published" + (f", {bad:,} bad" if bad else "")
        self._bar.update(self._task, advance=size, description=text)

    def say(self, text: str) -> None:
        self._bar.console.print(Text(f"stagebell: {text}"), soft_wrap=True)

    def close(self) -> None:
        self._bar.stop()


def make_progress(descriptor: int) -> Progress:
    """Progress for an input; silent when standard error is no terminal, or when the input is typed."""
    if not sys.stderr.isatty() or os.isatty(descriptor):
        return Progress()
    status = os.fstat(descriptor)
    return _Live(status.st_size if stat.S_ISREG(status.st_mode) else None)
