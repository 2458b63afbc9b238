"""The outcome of a dry run over stored states, for people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from stagebell.runtime.ops.console import one_line
from stagebell.runtime.ops.tables import Row, alarm, table
from stagebell.runtime.redis.dry_run import StateReport, TypeReport

_TYPES = "agent type|reads|#states|#current|#migrated|#failing"


def show(report: StateReport, server: str, console: Console) -> None:
    """Print a table of the agent types, the first failures of each, and a sum."""
    console.print(Text(f"stored states of namespace {report.namespace} at {server}"))
    types = table(_TYPES, [_row(each) for each in report.types])
    if types is not None:
        console.print(types)
    for each in report.types:
        for failure in each.failures:
            console.print(Text(f"{failure.agent}: {one_line(failure.error)}", style="red"), soft_wrap=True)
        if each.failing > len(each.failures):
            console.print(Text(f"{each.name}: {each.failing - len(each.failures):,} more fail"))
    console.print(_sum(report))


def _row(report: TypeReport) -> Row:
    if not report.has_factory:
        return [report.name, Text("not set up here", style="dim"), f"{report.stored:,}", "-", "-", "-"]
    return [
        report.name,
        ", ".join(report.reads) or "-",
        f"{report.stored:,}",
        f"{report.current:,}",
        f"{report.migrated:,}",
        alarm(report.failing),
    ]


def _sum(report: StateReport) -> Text:
    if report.failing:
        return Text(f"{report.failing:,} of {report.checked:,} states would not be loaded", style="bold red")
    stored = sum(each.stored for each in report.types)
    if report.checked < stored:
        return Text(f"{report.checked:,} of {stored:,} states were tried, and can be loaded", style="bold")
    return Text(f"all {stored:,} states can be loaded", style="bold")
