"""The picture for the README: how many times better than AutoGen, with the gate and the goal."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.contenders import REDIS_STATE
from benchmarks.measures import MEASURES
from benchmarks.report import Row, figure

INK, GREY = "#1f2933", "#6b7680"
SOLID, LIGHT = "#2f6f9f", "#9cc3de"
GATE, GOAL = "#c2571a", "#3b8f4e"
PLACES = ("in one process", "across processes")
WIDTH = 9.0
BAR = 0.26
"""Inches of height for one bar with its gap."""


def picture(all_rows: list[Row], file: Path, caption: str) -> None:
    """Draw the rows that have a ratio and a gate into `file` (PNG or SVG by its ending)."""
    shown = [[row for row in _chosen(all_rows) if MEASURES[row.measure].place == place] for place in PLACES]
    groups = [(place, group) for place, group in zip(PLACES, shown, strict=True) if group]
    if not groups:
        return
    heights = [_positions(group)[-1] + 2.2 for _, group in groups]
    drawing = Figure(figsize=(WIDTH, BAR * (sum(heights) + 2)), layout="constrained")
    panels = drawing.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
    for axes, (place, group) in zip(panels[:, 0], groups, strict=True):
        _panel(axes, place, group)
    drawing.legend(handles=_legend(groups), loc="outside upper right", ncols=4, frameon=False, fontsize=8.5)
    drawing.supxlabel(caption, fontsize=7.5, color=GREY, x=0.01, ha="left")
    drawing.savefig(file, dpi=110, facecolor="white")


def _chosen(all_rows: list[Row]) -> list[Row]:
    """One server is enough for a picture: the Redis rows where there are any."""
    gated = [row for row in all_rows if row.gate is not None and row.ratio is not None]
    redis = any(row.contender.startswith("redis") for row in gated)
    return [row for row in gated if not (redis and row.contender.startswith("valkey"))]


def _positions(group: list[Row]) -> list[float]:
    """Where each bar stands: bars of one measure touch, measures keep a distance."""
    positions: list[float] = []
    for number, row in enumerate(group):
        step = 0.85 if number and group[number - 1].measure == row.measure else 1.5
        positions.append(positions[-1] + step if positions else 0.0)
    return positions


def _panel(axes: Axes, place: str, group: list[Row]) -> None:
    positions = _positions(group)
    ratios = [row.ratio or 0 for row in group]
    axes.barh(positions, ratios, height=0.8, color=[_colour(row) for row in group], zorder=2)
    for position, row in zip(positions, group, strict=True):
        _marks(axes, position, row)
    axes.axvline(1, color=GREY, linewidth=0.9, linestyle=(0, (3, 2)), zorder=3)
    axes.set_xlim(0, max([*ratios, *(row.goal.ratio or 0 for row in group)]) * 1.36)
    axes.set_ylim(positions[-1] + 0.7, -0.7)
    _labels(axes, group, positions)
    title = f"{place.capitalize()}: times better than AutoGen (dashed line)"
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.spines[:].set_visible(False)


def _labels(axes: Axes, group: list[Row], positions: list[float]) -> None:
    """One label for all bars of a measure; no numbers on the axis, they stand at the bars."""
    numbered = groupby(zip(positions, group, strict=True), key=lambda pair: pair[1].measure)
    middles = {measure: mean(position for position, _ in pairs) for measure, pairs in numbered}
    titles = [MEASURES[measure].title for measure in middles]
    axes.set_yticks(list(middles.values()), titles, fontsize=9, color=INK)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)


def _marks(axes: Axes, position: float, row: Row) -> None:
    """Gate and goal as short strokes across the bar, and the figures behind the last of them."""
    for value, colour in ((row.gate, GATE), (row.goal.ratio, GOAL)):
        if value is not None:
            ends = [position - 0.4, position + 0.4]
            axes.plot([value, value], ends, color=colour, linewidth=2.2, solid_capstyle="butt", zorder=4)
    unit = MEASURES[row.measure].unit
    text = f"{row.ratio:.1f}×   {figure(row.ours, unit)} against {figure(row.peer, unit)}"
    end = max(value for value in (row.ratio, row.gate, row.goal.ratio) if value is not None)
    place: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
    axes.annotate(text, (end, position), fontsize=8, color=INK, **place)


def _colour(row: Row) -> str:
    return LIGHT if row.contender.endswith("state") else SOLID


def _legend(groups: list[tuple[str, list[Row]]]) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(color=SOLID, label="stagebell")]
    if any(row.contender == REDIS_STATE for _, group in groups for row in group):
        handles.append(Patch(color=LIGHT, label="with 200 B of state"))
    for label, colour in (("gate", GATE), ("goal", GOAL)):
        handles.append(Line2D([], [], color=colour, linewidth=2.2, label=label))
    return handles
