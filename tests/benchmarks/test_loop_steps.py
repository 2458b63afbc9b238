"""The report of the loop's steps: the cheapest peer is the measure, and ours have gates."""

from __future__ import annotations

import pytest

from benchmarks.loop_steps.report import ALONE, markdown, rows, table

pytestmark = pytest.mark.unit

SAMPLES = {ALONE: {"ours": [20.0, 30.0, 25.0], "dear": [400.0, 300.0, 500.0], "cheap": [100.0, 90.0, 110.0]}}


def test_ours_is_told_as_a_part_of_the_cheapest_peer() -> None:
    """Of medians, cheapest first; ours is never its own measure."""
    found = rows(SAMPLES, {(ALONE, "ours"): 0.25})
    assert [(row.name, row.cost, row.of_cheapest) for row in found] == [
        ("ours", 25.0, 0.25),
        ("cheap", 100.0, 1.0),
        ("dear", 400.0, 4.0),
    ]
    assert [row.ok for row in found] == [True, None, None]
    assert "| ours, one run at a time | 25 | 0.25× |" in markdown(found)
    assert table(found).row_count == 4


def test_a_gate_can_be_missed() -> None:
    """By a little more than allowed."""
    assert rows(SAMPLES, {(ALONE, "ours"): 0.24})[0].ok is False
