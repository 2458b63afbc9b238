"""Circles of calls over several processes, as values: no clock, no server.

Who waits for whom
    a message in a mailbox   for each open turn of its agent that it does not descend from
    an open turn             for every call that it has open
    such a call              is a message in a mailbox, or a turn

An inquiry begins at a call that waits in a mailbox and follows these edges from owner to owner. When it comes back to
the call it began with, it has closed a circle. None of the edges it passed can have ended in between, since each ends
only after the one behind it; but a turn may have given a call up (a time-out), and one that does not await a call of
its own (a task it left behind) counts as waiting for it.

Every waiting call of a circle may ask, and one of them is refused: all choose that with the smallest turn id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

LONGEST = 64
"""How many agents an inquiry passes; a longer circle is not found."""

MOST_AT_ONCE = 64
"""How many calls one step passes on, or follows in this process: a turn may have thousands open."""


class Place(NamedTuple):
    """A call where it lies: the tag of its partition, its entry there, and the turn it is or will be."""

    tag: str
    entry_id: str
    turn_id: str


class Awaited(NamedTuple):
    """A call that somebody waits for, and the agents in the memory of one process through which it was made."""

    call: Place
    through: tuple[str, ...] = ()


class Found(NamedTuple):
    """What the owner of a call knows of it.

    Attributes:
        agent: whom it calls.
        waits: it is in the mailbox.
        calls: what its turn waits for; of one in the mailbox, what the turns before it wait for.
    """

    agent: str
    waits: bool
    calls: tuple[Awaited, ...]


class Inquiry(NamedTuple):
    """A question on its way.

    Attributes:
        asker: the waiting call it began with.
        at: the call to look at next.
        first: the waiting call with the smallest turn id among those it has passed.
        path: the agents it has passed.
    """

    asker: Place
    at: Place
    first: Place
    path: tuple[str, ...] = ()

    @classmethod
    def of(cls, call: Place) -> Inquiry:
        """A new one."""
        return cls(call, call, call)


class Circle(NamedTuple):
    """Agents that wait for each other, the first again at the end, and the call to refuse."""

    refused: Place
    agents: tuple[str, ...]


class Step(NamedTuple):
    """What follows from one inquiry in one process: circles, and inquiries for other owners."""

    circles: tuple[Circle, ...]
    onward: tuple[Inquiry, ...]


def follow(inquiry: Inquiry, is_here: Callable[[str], bool], look: Callable[[Place], Found | None]) -> Step:
    """Follow an inquiry as far as this process can.

    Args:
        inquiry: its `at` lies here.
        is_here: whether the partition with this tag is owned by this process.
        look: what is known of a call here, None when it is not in memory (any more).
    """
    circles: list[Circle] = []
    onward: list[Inquiry] = []
    seen: set[tuple[Place, Place]] = set()
    stack = [inquiry]
    while stack and len(seen) < MOST_AT_ONCE and len(onward) < MOST_AT_ONCE:
        current = stack.pop()
        if not is_here(current.at.tag):
            onward.append(current)
            continue
        found = look(current.at)
        if found is not None and current.path and current.at == current.asker:
            if found.waits:
                circles.append(Circle(current.first, (*current.path, current.path[0])))
        elif found is not None and len(current.path) < LONGEST and (current.at, current.first) not in seen:
            seen.add((current.at, current.first))
            stack.extend(_next(current, found))
    return Step(tuple(circles), tuple(onward))


def _next(inquiry: Inquiry, found: Found) -> list[Inquiry]:
    first = inquiry.first
    if found.waits and inquiry.at.turn_id < first.turn_id:
        first = inquiry.at
    path = (*inquiry.path, found.agent)
    return [inquiry._replace(at=call, first=first, path=path + through) for call, through in found.calls]
