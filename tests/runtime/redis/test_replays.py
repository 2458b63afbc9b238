"""What a turn that runs again sees, in which order: on values."""

from __future__ import annotations

import pytest

from stagebell.runtime.redis.savepoints import (
    Await,
    Below,
    Inner,
    LetIn,
    Load,
    Over,
    Replay,
    Savepoint,
    Take,
    find_inner,
    place,
    read_savepoints,
)

pytestmark = pytest.mark.unit


def test_a_place_is_read_as_it_was_written() -> None:
    at = place(["1.0", "0.0"], {"2.0", "0.1"})
    fields = {"2": b"second", "@2": at.encode(), "0": b"first", "@0": b"0  1.0 ", "last": b"2", "#n": b"3", "-": b"?"}
    assert read_savepoints(fields) == [
        Savepoint((), frozenset({"1.0"}), b"first"),
        Savepoint(("1.0", "0.0"), frozenset({"2.0", "0.1"}), b"second"),
    ]


def test_a_savepoint_is_loaded_when_the_turn_awaits_what_it_awaited_then() -> None:
    replay = Replay([Savepoint((), frozenset({"0.0", "1.0"}), b"s")])
    assert replay.next([], {"0.0"}, set()) == Await("1.0")
    assert replay.next([], {"0.0", "1.0"}, {"0.0"}) == Load(b"s")
    assert replay.next([], {"0.0", "1.0"}, {"0.0"}) == Over()


def test_replies_are_taken_in_the_order_of_the_first_run() -> None:
    replay = Replay([Savepoint((), frozenset({"0.0"}), b"a"), Savepoint(("1.0", "0.0"), frozenset({"2.0"}), b"b")])
    made = {"0.0", "1.0", "2.0"}
    assert replay.next([], made, {"0.0"}) == Load(b"a")
    assert replay.next([], made, {"0.0"}) == Await("1.0")
    assert replay.next([], made, {"0.0", "1.0", "2.0"}) == Take("1.0")
    assert replay.next(["1.0"], made, {"0.0", "2.0"}) == Take("0.0")
    assert replay.next(["1.0", "0.0"], made, {"2.0"}) == Load(b"b")
    assert replay.next(["1.0", "0.0"], made, {"2.0"}) == Over()


def test_without_savepoints_there_is_nothing_to_see() -> None:
    assert Replay([]).next([], {"0.0"}, {"0.0"}) == Over()


def test_an_unfinished_nested_turn_comes_before_further_replies() -> None:
    root = Below("T", "1.0", ("0.0",), frozenset({"1.0", "2.0"}))
    inner = find_inner("T", {"other": [], "N": [Savepoint((), frozenset({"0.0"}), b"n", (root,))]})
    assert inner == Inner("N", root)
    replay = Replay([], inner)
    made = {"0.0", "1.0", "2.0"}
    assert replay.next([], made, {"0.0", "2.0"}) == Take("0.0")
    assert replay.next(["0.0"], {"0.0", "1.0"}, {"2.0"}) == Await("2.0")
    assert replay.next(["0.0"], made, {"2.0"}) == LetIn(Inner("N", root))
    assert replay.next(["0.0"], made, {"2.0"}) == Over()


def test_a_call_that_the_turn_gives_up_now_is_not_waited_for() -> None:
    gone: set[str] = set()
    replay = Replay([Savepoint(("0.0",), frozenset({"0.1", "1.0"}), b"s")], gone=gone)
    assert replay.next([], {"0.0"}, set()) == Await("0.0")
    assert not replay.holds("0.0")
    gone.add("0.0")
    assert replay.next([], {"0.0", "1.0"}, set()) == Await("0.1")
    assert replay.holds("1.0")  # the savepoint belongs before what the turn does when it gives that up
    assert replay.next([], {"0.0", "1.0", "0.1"}, set()) == Load(b"s")
    assert not replay.holds("1.0")


def test_an_unfinished_nested_turn_is_let_in_at_the_first_call_that_is_made_anew() -> None:
    root = Below("T", "1.0", ("0.0", "2.0"), frozenset({"1.0", "0.1"}))
    anew: set[str] = set()
    replay = Replay([], Inner("N", root), anew)
    assert replay.next(["0.0"], {"0.0", "1.0"}, {"1.0"}) == Await("2.0")
    anew.add("2.0")
    assert replay.next(["0.0"], {"0.0", "1.0", "2.0"}, {"1.0"}) == LetIn(Inner("N", root))


def test_a_nested_turn_is_found_by_what_is_above_it() -> None:
    middle, root = Below("N", "0.0", (), frozenset({"0.0"})), Below("T", "3.0", (), frozenset({"3.0"}))
    text = place([], {"5.0"}, [middle, root]).encode()
    others = {"M": read_savepoints({"0": b"m", "@0": text})}
    assert find_inner("T", others) == Inner("N", root)
    assert find_inner("N", others) == Inner("M", middle)
    assert find_inner("M", others) is None
