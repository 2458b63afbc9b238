"""How circles are found, on values: every circle is, nothing else is, and one call of each is chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagebell.runtime.redis.circles import LONGEST, Awaited, Circle, Found, Inquiry, Place, follow

pytestmark = pytest.mark.unit

WORKERS = 3


class Calls:
    """Calls, each with those that it waits for; call n lies at worker n modulo `WORKERS`."""

    def __init__(self, edges: dict[int, set[int]], waiting: set[int]) -> None:
        self.edges = {n: set(edges.get(n, ())) for n in set(edges).union(*edges.values())}
        self.waiting = waiting

    def place(self, n: int) -> Place:
        return Place(f"w{n % WORKERS}", f"{n}-0", f"{n:04}")

    def look(self, place: Place) -> Found | None:
        n = int(place.turn_id)
        if n not in self.edges:
            return None
        awaited = tuple(Awaited(self.place(other)) for other in sorted(self.edges[n]))
        return Found(f"agent/{n}", n in self.waiting, awaited)

    def ask(self, n: int) -> set[Circle]:
        """Follow the inquiry of one call through all workers."""
        found: set[Circle] = set()
        on_the_way = [Inquiry.of(self.place(n))]
        passed: set[tuple[Place, Place]] = set()
        while on_the_way:
            inquiry = on_the_way.pop()
            if (inquiry.at, inquiry.first) in passed and inquiry.at != inquiry.asker:
                continue
            passed.add((inquiry.at, inquiry.first))
            here = inquiry.at.tag
            step = follow(inquiry, lambda tag, here=here: tag == here, self.look)
            found.update(step.circles)
            on_the_way += step.onward
        return found

    def refuse(self, n: int) -> None:
        """The call ends, so nobody waits for it."""
        self.edges.pop(n)
        self.waiting.discard(n)
        for others in self.edges.values():
            others.discard(n)

    def reaches(self, n: int, other: int) -> bool:
        """True when call n waits, over any number of others, for the other one."""
        seen: set[int] = set()
        stack = list(self.edges[n])
        while stack:
            if (current := stack.pop()) == other:
                return True
            if current not in seen:
                seen.add(current)
                stack.extend(self.edges.get(current, ()))
        return False


def test_two_that_wait_for_each_other_agree_on_the_one_to_refuse() -> None:
    calls = Calls({1: {2}, 2: {1}}, {1, 2})
    circles = calls.ask(1) | calls.ask(2)
    assert {circle.refused for circle in circles} == {calls.place(1)}
    assert {circle.agents for circle in circles} == {
        ("agent/1", "agent/2", "agent/1"),
        ("agent/2", "agent/1", "agent/2"),
    }


def test_a_call_behind_a_turn_that_waits_for_nothing_asks_nobody() -> None:
    calls = Calls({1: set()}, {1})
    step = follow(Inquiry.of(calls.place(1)), lambda tag: True, calls.look)
    assert step == ((), ())


def test_who_only_waits_for_a_circle_is_no_part_of_it() -> None:
    calls = Calls({1: {2}, 2: {3}, 3: {2}}, {1, 2, 3})
    assert calls.ask(1) == set()
    assert {circle.refused for circle in calls.ask(3)} == {calls.place(2)}


def test_a_turn_is_not_refused_and_not_counted() -> None:
    """Only what waits in a mailbox can be refused: here calls 2 and 3, while 1 is a turn."""
    calls = Calls({1: {2}, 2: {3}, 3: {1}}, {2, 3})
    assert {circle.refused for circle in calls.ask(3)} == {calls.place(2)}


def test_a_call_that_was_let_in_meanwhile_ends_the_inquiry() -> None:
    calls = Calls({1: {2}, 2: {1}}, {2})
    assert calls.ask(1) == set()


def test_agents_in_the_memory_of_one_process_are_named() -> None:
    asker = Place("w0", "1-0", "1")
    found = Found("a/x", True, (Awaited(asker, ("bound/y",)),))
    step = follow(Inquiry.of(asker), lambda tag: True, lambda place: found)
    assert step.circles == (Circle(asker, ("a/x", "bound/y", "a/x")),)


def test_a_path_that_is_too_long_is_given_up() -> None:
    calls = Calls({n: {(n + 1) % (LONGEST + 2)} for n in range(LONGEST + 2)}, set(range(LONGEST + 2)))
    assert calls.ask(0) == set()


@given(
    st.dictionaries(st.integers(0, 11), st.sets(st.integers(0, 11), max_size=2), min_size=1, max_size=12),
    st.sets(st.integers(0, 11)),
)
def test_every_circle_is_ended_and_nothing_else(edges: dict[int, set[int]], waiting: set[int]) -> None:
    calls = Calls(edges, waiting)
    while asking := [n for n in calls.waiting & calls.edges.keys() if calls.reaches(n, n)]:
        found = {circle for n in asking for circle in calls.ask(n)}
        refused = {int(circle.refused.turn_id) for circle in found}
        assert refused, "a circle that nobody ends"
        assert refused <= set(asking), "a call outside of all circles is refused"
        calls.refuse(min(refused))
    for n in calls.waiting & calls.edges.keys():
        assert calls.ask(n) == set()
