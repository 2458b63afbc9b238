"""What a person sees: bars on a terminal, plain lines elsewhere, tables at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.audit.messages import RankedPackage, Ranking
from examples.audit.recovery import Recovery
from examples.audit.report import Report
from examples.audit.run import Outcome

_PLAIN_WIDTH = 110
_NAME_WIDTH = 12
_NUMBER_WIDTH = 7
_SHOWN_DIFFERENCES = 20


def console() -> Console:
    """Returns the console for standard output, wide enough for the tables when it is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


class Bar:
    """Shows how far it is: a bar on a terminal, a line for every tenth of the way elsewhere."""

    def __init__(self, out: Console, what: str, total: int) -> None:
        self._out = out
        self._what = what
        self._total = total
        self._tenths = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if self._out.is_terminal:
            columns = (
                TextColumn(f"{self._what:<24}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=self._out)
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int) -> None:
        """Shows that so many are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
        elif done * 10 // max(1, self._total) > self._tenths:
            self._tenths = done * 10 // self._total
            self._out.print(f"{self._what}: {done:,} of {self._total:,} files")

    def note(self, text: str) -> None:
        """Says something beside the bar."""
        self._out.print(text)


def show_outcome(out: Console, outcome: Outcome, plain_seconds: float) -> None:
    """Prints the ranking, how the work was spread, how long it took and how long recovery took."""
    out.print(_ranking_table(outcome.ranking))
    out.print(_spread_table(outcome.report, outcome.recovery))
    files = outcome.ranking.total.files
    out.print(
        f"agents: {files:,} files in {outcome.seconds:.1f} s, {files / outcome.seconds:,.0f} a second; "
        f"plain computation, one process: {plain_seconds:.1f} s"
    )
    if outcome.recovery is not None:
        out.print(_recovery_text(outcome.recovery))


def show_check(out: Console, files: int, wrong: list[str]) -> None:
    """Prints whether every count is right, or which are not."""
    if not wrong:
        out.print(
            f"every file was counted exactly once: {files:,} of {files:,}, and every sum equals the plain computation's"
        )
        return
    out.print(f"WRONG: {len(wrong)} counts differ from the plain computation", style="bold red")
    for text in wrong[:_SHOWN_DIFFERENCES]:
        out.print(f"  {text}", markup=False)


def _ranking_table(ranking: Ranking) -> Table:
    table = Table(
        title="The most complex packages",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("package", no_wrap=True, min_width=_NAME_WIDTH)
    for name in ("files", "lines", "functions", "complexity", "highest", "longest"):
        table.add_column(name, justify="right", min_width=max(len(name), _NUMBER_WIDTH))
    table.add_column("longest function", no_wrap=True)
    for package in ranking.packages:
        table.add_row(*_cells(package))
    table.add_section()
    table.add_row(*_cells(ranking.total))
    return table


def _cells(package: RankedPackage) -> list[str]:
    numbers = [
        package.files,
        package.lines,
        package.functions,
        package.complexity,
        package.highest_complexity,
        package.longest_function_lines,
    ]
    return [package.package, *(f"{number:,}" for number in numbers), package.longest_function]


def _spread_table(report: Report, recovery: Recovery | None) -> Table:
    table = Table(title="Who measured them", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("worker process")
    table.add_column("files", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    total = sum(report.by_worker.values())
    for worker, files in sorted(report.by_worker.items()):
        killed = recovery is not None and recovery.killed == worker
        table.add_row(str(worker), f"{files:,}", f"{files / total:.0%}", "killed on the way" if killed else "")
    return table


def _recovery_text(recovery: Recovery) -> str:
    if recovery.first is None:
        return f"recovery: the killed worker {recovery.killed} was busy with no package, nothing had to recover"
    everything = "not seen" if recovery.all is None else f"{recovery.all:.2f} s"
    return (
        f"recovery: {recovery.first:.2f} s from the kill until another worker had measured a file of one of "
        f"the killed worker's {recovery.packages} package(s), {everything} until that held for all of them"
    )
