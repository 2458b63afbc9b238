"""From samples to rows and a table: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from rich.table import Table

ALONE: Final = "one run at a time"
IN_FLIGHT: Final = "100 runs in flight"


@dataclass(frozen=True, slots=True)
class Row:
    """One contender: microseconds a step, and how many times the cheapest peer of the same run.

    `gate` is the largest factor that it may have; None for peers.
    """

    how: str
    name: str
    cost: float
    of_cheapest: float
    gate: float | None

    @property
    def ok(self) -> bool | None:
        """Whether the gate is passed; None where there is none."""
        return None if self.gate is None else self.of_cheapest <= self.gate


def rows(samples: Mapping[str, Mapping[str, list[float]]], gates: Mapping[tuple[str, str], float]) -> list[Row]:
    """All rows: what of whom, cheapest first.

    Args:
        samples: how → contender → microseconds a step, one for each round.
        gates: (how, contender) → the largest part of the cheapest peer's cost.
    """
    found: list[Row] = []
    ours = {name for _, name in gates}
    for how, contenders in samples.items():
        cheapest = min(median(costs) for name, costs in contenders.items() if name not in ours)
        measured = [(median(costs), name) for name, costs in contenders.items()]
        found += [Row(how, name, cost, cost / cheapest, gates.get((how, name))) for cost, name in sorted(measured)]
    return found


def table(all_rows: list[Row]) -> Table:
    """For a terminal."""
    result = Table(title="one step of an agent's loop, the model left out", title_justify="left", title_style="bold")
    result.add_column("what", no_wrap=True)
    for title in ("µs a step", "× cheapest peer", "gate", ""):
        result.add_column(title, justify="right")
    for how in dict.fromkeys(row.how for row in all_rows):
        result.add_section()
        result.add_row(f"[bold]{how}[/]", "", "", "", "")
        for row in (each for each in all_rows if each.how == how):
            gate = "" if row.gate is None else f"≤ {row.gate:g}×"
            verdict = {True: "[green]ok[/]", False: "[bold red]missed[/]", None: ""}[row.ok]
            result.add_row(f"  {row.name}", f"{row.cost:,.0f}", f"{row.of_cheapest:.2f}×", gate, verdict)
    return result


def markdown(all_rows: list[Row]) -> str:
    """For the README."""
    lines = ["| one step of an agent's loop | µs | of the cheapest peer |", "|---|---:|---:|"]
    lines += [f"| {row.name}, {row.how} | {row.cost:,.0f} | {row.of_cheapest:.2f}× |" for row in all_rows]
    return "\n".join(lines)
