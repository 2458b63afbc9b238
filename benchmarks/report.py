"""From raw samples to rows, to a table and to the saved file. Pure: no clock, no file, no process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import median
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.contenders import CONTENDERS, Role
from benchmarks.measures import MEASURES, Goal, Measure
from benchmarks.samples import Samples


@dataclass(frozen=True, slots=True)
class Row:
    """One contender of ours in one measure, with its peer and its floor from the same run.

    `ratio` says how many times better than the peer it is; `ok` is None where no gate applies.
    """

    measure: str
    contender: str
    role: Role
    ours: float
    peer: float | None
    floor: float | None
    ratio: float | None
    gate: float | None
    goal: Goal
    ok: bool | None
    goal_reached: bool | None


def rows(samples: Samples) -> list[Row]:
    """All rows, in the order of the measures and of the contenders."""
    return [
        _row(measure, name, contenders)
        for key, measure in MEASURES.items()
        if (contenders := samples.by_measure.get(key))
        for name in _shown(contenders)
    ]


def missed(all_rows: list[Row]) -> list[Row]:
    """The rows that are below their gate."""
    return [row for row in all_rows if row.ok is False]


def _shown(contenders: Mapping[str, list[float]]) -> list[str]:
    """Who gets a row; peer and floor stand in the columns, unless there is nothing else to show."""
    names = [name for name in CONTENDERS if name in contenders]
    return [name for name in names if CONTENDERS[name].role not in ("peer", "floor")] or names


def _row(measure: Measure, name: str, contenders: Mapping[str, list[float]]) -> Row:
    role = CONTENDERS[name].role
    ours = median(contenders[name])
    peer, floor = _median_of("peer", contenders), _median_of("floor", contenders)
    ratio = None if peer is None else times_better(measure, ours, peer)
    gate = measure.gate if role == "ours" else None
    ok = None if gate is None or ratio is None else ratio >= gate
    goal = measure.goal if role in ("ours", "note") else Goal()
    reached = goal_reached(measure, goal, ours, ratio, floor)
    return Row(measure.key, name, role, ours, peer, floor, ratio, gate, goal, ok, reached)


def _median_of(role: Role, contenders: Mapping[str, list[float]]) -> float | None:
    found = (median(values) for name, values in contenders.items() if CONTENDERS[name].role == role)
    return next(found, None)


def times_better(measure: Measure, ours: float, other: float) -> float:
    """How many times better `ours` is than `other` in this measure; below 1 it is worse."""
    return ours / other if measure.more_is_better else other / ours


def goal_reached(measure: Measure, goal: Goal, ours: float, ratio: float | None, floor: float | None) -> bool | None:
    """Whether every term of the goal that can be judged is reached; None when there is none."""
    terms: list[bool] = []
    if goal.ratio is not None and ratio is not None:
        terms.append(ratio >= goal.ratio)
    if goal.of_floor is not None and floor is not None:
        terms.append(times_better(measure, ours, floor) >= 1 / goal.of_floor)
    if goal.absolute is not None:
        terms.append(ours >= goal.absolute if measure.more_is_better else ours <= goal.absolute)
    return all(terms) if terms else None


def table(all_rows: list[Row], place: str) -> Table:
    """The rows of one place ("in one process", "across processes") for a terminal."""
    result = Table(title=place, title_justify="left", title_style="bold", header_style="bold")
    result.add_column("what", no_wrap=True)
    for title in ("ours", "AutoGen", "floor", "× AutoGen", "× floor", "gate", "goal", ""):
        result.add_column(title, justify="right" if title else "left")
    here = (row for row in all_rows if MEASURES[row.measure].place == place)
    for key, group in groupby(here, key=lambda row: row.measure):
        _add_measure(result, MEASURES[key], list(group))
    return result


def _add_measure(result: Table, measure: Measure, group: list[Row]) -> None:
    """One line when only one was measured; else what they share first, then a line for each."""
    first = group[0]
    shared = _Shared(measure, first)
    if len(group) == 1:
        result.add_row(measure.title, *_cells(shared, first))
        return
    result.add_section()
    result.add_row(Text(measure.title, "bold"), "", shared.peer, shared.floor, "", "", shared.gate, shared.goal)
    for row in group:
        own = _cells(shared, row)
        result.add_row(f"  {CONTENDERS[row.contender].title}", own[0], "", "", *own[3:5], "", "", own[-1])


class _Shared:
    """The cells that every contender of a measure has in common."""

    def __init__(self, measure: Measure, row: Row) -> None:
        self.unit = measure.unit
        self.peer = figure(row.peer, measure.unit)
        self.floor = figure(row.floor, measure.unit)
        self.gate = "" if row.gate is None else f"{row.gate:g}×"
        self.goal = goal_text(measure, row.goal)


def _cells(shared: _Shared, row: Row) -> list[str | Text]:
    of_floor = None if row.floor is None else row.ours / row.floor
    verdict = {True: Text("ok", "green"), False: Text("missed", "bold red"), None: Text("")}[row.ok]
    if row.goal_reached:
        verdict = Text.assemble(verdict, Text(" goal", "green"))
    ours = figure(row.ours, shared.unit)
    times = [_times(row.ratio), _times(of_floor)]
    return [ours, shared.peer, shared.floor, *times, shared.gate, shared.goal, verdict]


def figure(value: float | None, unit: str) -> str:
    """A figure with its unit, three digits at most where that is enough."""
    if value is None:
        return ""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{text}{unit}" if unit.startswith("/") else f"{text} {unit}"


def _times(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 1 else f"{value:.2f}×"


def goal_text(measure: Measure, goal: Goal) -> str:
    """The goal in words as short as a column needs."""
    bound = "≥" if measure.more_is_better else "≤"
    terms = [
        "" if goal.ratio is None else f"{goal.ratio:g}×",
        "" if goal.of_floor is None else f"{bound} {goal.of_floor:g}× floor",
        "" if goal.absolute is None else f"{bound} {figure(goal.absolute, measure.unit)}",
    ]
    return ", ".join(term for term in terms if term)


def markdown(all_rows: list[Row]) -> str:
    """The rows of ours as a table for the README."""
    lines = ["| what | stagebell | AutoGen | ratio |", "|---|---:|---:|---:|"]
    for row in all_rows:
        if row.role != "ours":
            continue
        measure = MEASURES[row.measure]
        name = f"{measure.title} ({CONTENDERS[row.contender].title})"
        ours, peer = figure(row.ours, measure.unit), figure(row.peer, measure.unit)
        lines.append(f"| {name} | {ours} | {peer} | {_times(row.ratio)} |")
    return "\n".join(lines)


def document(samples: Samples, machine: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The file to save: machine, settings, rows, and every sample."""
    units = {key: MEASURES[key].unit for key in samples.by_measure}
    return {
        "machine": dict(machine),
        "settings": dict(settings),
        "units": units,
        "rows": [asdict(row) for row in rows(samples)],
        "samples": samples.by_measure,
    }
