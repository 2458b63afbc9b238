"""The report: medians, ratios, gates and goals from raw samples."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from benchmarks.contenders import AUTOGEN, GRPC, LOCAL, QUEUE, REDIS, REDIS_EVERYSEC, REDIS_PY, THIN
from benchmarks.measures import CALL, MEASURES, MEMORY, Goal, delivered, p50
from benchmarks.report import (
    document,
    figure,
    goal_reached,
    goal_text,
    markdown,
    missed,
    rows,
    table,
    times_better,
)
from benchmarks.samples import Samples, percentile

pytestmark = pytest.mark.unit


def samples(**by_measure: dict[str, list[float]]) -> Samples:
    return Samples.of({key.replace("_", "-"): contenders for key, contenders in by_measure.items()})


def test_a_row_compares_medians_of_the_same_run() -> None:
    [row] = rows(samples(call={LOCAL: [4, 5, 90], AUTOGEN: [100, 110, 300], QUEUE: [7, 8, 9]}))
    assert (row.ours, row.peer, row.floor) == (5, 110, 8)
    assert row.ratio == 22


def test_less_time_and_more_messages_are_both_better() -> None:
    assert times_better(MEASURES[CALL], ours=5, other=100) == 20
    assert times_better(MEASURES[delivered(1)], ours=6_000, other=2_000) == 3


@pytest.mark.parametrize(("ours", "ok"), [(5.0, True), (5.1, False)])
def test_the_gate_is_checked_against_the_ratio(ours: float, ok: bool) -> None:
    found = rows(samples(call={LOCAL: [ours], AUTOGEN: [100]}))
    assert found[0].ok is ok
    assert missed(found) == ([] if ok else found)


def test_without_the_peer_nothing_is_judged() -> None:
    [row] = rows(samples(call={LOCAL: [5]}))
    assert (row.peer, row.ratio, row.ok) == (None, None, None)


def test_a_note_is_outside_the_gate_but_shows_its_ratio() -> None:
    found = rows(samples(delivered_1={REDIS: [9_000], REDIS_EVERYSEC: [2_000], GRPC: [2_000], THIN: [90_000]}))
    note = next(row for row in found if row.contender == REDIS_EVERYSEC)
    assert (note.ratio, note.gate, note.ok) == (1, None, None)
    assert missed(found) == []


def test_a_reference_has_neither_gate_nor_goal() -> None:
    found = rows(samples(p50_1={REDIS: [400], REDIS_PY: [600], GRPC: [900], THIN: [300]}))
    reference = next(row for row in found if row.contender == REDIS_PY)
    assert (reference.gate, reference.goal, reference.goal_reached) == (None, Goal(), None)


def test_peer_and_floor_get_rows_of_their_own_when_ours_was_not_measured() -> None:
    assert [row.contender for row in rows(samples(call={QUEUE: [7], AUTOGEN: [100]}))] == [AUTOGEN, QUEUE]


@pytest.mark.parametrize(
    ("ours", "peer", "floor", "reached"),
    [(400, 900, 300, True), (460, 900, 300, False), (400, 700, 300, False), (400, 900, None, True)],
)
def test_every_term_of_a_goal_counts(ours: float, peer: float, floor: float | None, reached: bool) -> None:
    measure = MEASURES[p50(1)]
    assert goal_reached(measure, measure.goal, ours, times_better(measure, ours, peer), floor) is reached


def test_an_absolute_goal_needs_no_peer() -> None:
    assert goal_reached(MEASURES[MEMORY], MEASURES[MEMORY].goal, 790, None, None) is True
    assert goal_reached(MEASURES[delivered(1)], Goal(absolute=15_000), 14_000, None, None) is False
    assert goal_reached(MEASURES[CALL], Goal(), 5, 20, None) is None


def test_figures_are_short() -> None:
    assert [figure(value, "µs") for value in (3.456, 34.56, 3456.0)] == ["3.46 µs", "34.6 µs", "3,456 µs"]
    assert figure(15_000, "/s") == "15,000/s"
    assert figure(None, "B") == ""
    assert goal_text(MEASURES[p50(1)], MEASURES[p50(1)].goal) == "2×, ≤ 1.5× floor"


def test_percentiles_take_the_nearest_rank() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (50, 99, 7)


def test_the_saved_file_keeps_every_sample_and_gives_the_same_rows_again() -> None:
    first = samples(call={LOCAL: [4, 5, 6], AUTOGEN: [100, 110, 120], QUEUE: [7]})
    saved = json.loads(json.dumps(document(first, {"cpus": 2}, {"rounds": 3})))
    assert saved["samples"]["call"][LOCAL] == [4, 5, 6]
    assert rows(Samples.of(saved["samples"])) == rows(first)


def test_the_table_shows_what_contenders_share_once() -> None:
    found = rows(samples(delivered_1={REDIS: [9_000], REDIS_EVERYSEC: [8_000], GRPC: [2_000], THIN: [90_000]}))
    output = StringIO()
    Console(file=output, width=160).print(table(found, "across processes"))
    text = output.getvalue()
    assert text.count("2,000/s") == 1
    assert "9,000/s" in text
    assert "4.5×" in text


def test_the_markdown_table_has_a_line_for_each_of_ours() -> None:
    text = markdown(rows(samples(call={LOCAL: [5], AUTOGEN: [100]})))
    assert text.splitlines()[2:] == ["| call and reply, one at a time (LocalRuntime) | 5.00 µs | 100 µs | 20.0× |"]
