"""Calls overlap only when both of their tools say that they may."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagebell.tools.conflicts import Access, groups
from stagebell.tools.declared import Declared

pytestmark = pytest.mark.unit

ALONE = Access()
SAFE = Access.of(Declared(parallel_safe=True))


def reads(*names: str) -> Access:
    return Access.of(Declared(reads=frozenset(names)))


def writes(*names: str) -> Access:
    return Access.of(Declared(writes=frozenset(names)))


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (ALONE, ALONE, True),
        (ALONE, SAFE, True),
        (SAFE, SAFE, False),
        (SAFE, writes("a"), False),
        (reads("a"), reads("a"), False),
        (reads("a"), writes("a"), True),
        (writes("a"), writes("a"), True),
        (writes("a"), writes("b"), False),
    ],
)
def test_what_conflicts(one: Access, other: Access, conflict: bool) -> None:
    assert one.conflicts_with(other) is conflict
    assert other.conflicts_with(one) is conflict


def test_groups_keep_the_order() -> None:
    calls = [SAFE, reads("stock"), writes("stock"), ALONE, SAFE, SAFE]
    assert groups(calls) == [[0, 1], [2], [3], [4, 5]]
    assert groups([]) == []


some = st.frozensets(st.sampled_from("abc"))


@settings(deadline=None)
@given(st.lists(st.builds(Access, st.booleans(), some, some)))
def test_calls_of_one_group_never_conflict_and_none_overtakes(calls: list[Access]) -> None:
    found = groups(calls)
    assert [at for group in found for at in group] == list(range(len(calls)))
    for group in found:
        for one in group:
            assert not any(calls[one].conflicts_with(calls[other]) for other in group if other != one)
