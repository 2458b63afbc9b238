"""What a turn that runs again has to see in the order in which it saw it the first time: replies and savepoints.

A savepoint is the agent's whole state after a nested turn. With it goes the place where its parent stood: which replies
it had taken by then, in order, and which calls it awaited. The code of a turn never runs while a nested turn of it does
(`taking`), so the state holds exactly the effects of those replies and of the nested turns that have ended.

The rule for a turn that runs again
    1. It takes the replies that it had taken before the next savepoint, in the same order, and no other.
    2. When it awaits all the calls that it awaited then, and its code has come to rest, the savepoint is loaded.
    3. After the last savepoint all is as in a turn that runs for the first time: replies are taken as they come, and
       calls that descend from its own are let in.

A nested turn that lets nested turns in itself leaves their savepoints in its own hash until it ends. They hold what the
turns below it had taken when it began, so each savepoint also names those turns and where they stood: a turn that runs
again takes what it had taken then, lets that nested turn in before all others, and takes nothing more until it ends.

A retry forgets the replies that were failures, and from the first of them on the turn may go another way. So of the
savepoints that had seen it only the newest stays, which holds all that nested turns did, at the place where the turn
awaits that call again (lua/lib/step_back). What an open nested turn noted of the turns below it stays as it is; there
the first call that the turn makes anew is the place.

So code between two replies sees the same state again, what a nested turn did is neither lost nor done twice, and what
the turn itself did before a savepoint is replaced by the same, out of the savepoint. One savepoint is kept for each
number of replies taken, the last: in between no code of the turn ran that could have seen the others.

This asks two things of a handler: that it makes the same calls when it runs again, as everywhere, and that between
savepoints it waits for nothing but calls while several of them are open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WITHOUT_PLACE = "- "
"""The place when the nested turn came through an agent in memory, whose call is made again in any case."""


class Below(NamedTuple):
    """A turn further down in the stack, where it stood, and its call k by which the turn above it was let in."""

    turn_id: str
    k: str
    taken: tuple[str, ...]
    awaited: frozenset[str]

    def __str__(self) -> str:
        return f"{self.turn_id}:{self.k}:{','.join(self.taken)}:{','.join(sorted(self.awaited))}"

    @classmethod
    def parse(cls, text: str) -> Below:
        """What `str` wrote."""
        turn_id, k, taken, awaited = text.split(":")
        return cls(turn_id, k, _names(taken), frozenset(_names(awaited)))


class Savepoint(NamedTuple):
    """A state, the replies that the turn had taken before it, in order, and the calls that it awaited.

    `below` are the turns below that turn, the nearest first.
    """

    taken: tuple[str, ...]
    awaited: frozenset[str]
    state: bytes
    below: tuple[Below, ...] = ()


class Inner(NamedTuple):
    """A nested turn that has not ended and has left savepoints, and where its parent stood when it began."""

    turn_id: str
    parent: Below


class Load(NamedTuple):
    """The next thing for the turn: this state."""

    state: bytes


class Take(NamedTuple):
    """The next thing for the turn: the reply to this call."""

    k: str


class LetIn(NamedTuple):
    """The next thing for the turn: this nested turn, and nothing until it has ended."""

    inner: Inner


class Await(NamedTuple):
    """The turn has not made this call yet, or the reply to it is not known yet."""

    k: str


class Over(NamedTuple):
    """It has seen everything again."""


def place(taken: Sequence[str], awaited: Collection[str], below: Sequence[Below] = ()) -> str:
    """Where a turn stands, as the scripts take it; begins with the number of replies that it has taken."""
    return f"{len(taken)} {','.join(taken)} {','.join(sorted(awaited))} {';'.join(map(str, below))}"


def read_savepoints(fields: Mapping[str, bytes]) -> list[Savepoint]:
    """The savepoints in a hash, in their order (the scripts' `savepoint` says what its fields are)."""
    found: list[Savepoint] = []
    for name, value in fields.items():
        if name.startswith("@") and name[1:] in fields:
            _, taken, awaited, rest = value.decode().split(" ")
            below = tuple(map(Below.parse, rest.split(";"))) if rest else ()
            found.append(Savepoint(_names(taken), frozenset(_names(awaited)), fields[name[1:]], below))
    return sorted(found, key=lambda savepoint: len(savepoint.taken))


def find_inner(turn_id: str, others: Mapping[str, Sequence[Savepoint]]) -> Inner | None:
    """The nested turn of this turn that had begun, by the savepoints which others have left."""
    for other, savepoints in others.items():
        above = other
        for below in savepoints[-1].below if savepoints else ():
            if below.turn_id == turn_id:
                return Inner(above, below)
            above = below.turn_id
    return None


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


@dataclass
class Replay:
    """The savepoints, and after them the unfinished nested turn, that a turn has still to see again."""

    savepoints: list[Savepoint]
    inner: Inner | None = None
    anew: Collection[str] = ()
    gone: Collection[str] = ()  # calls that the turn has given up now: it takes no reply to them
    loaded: int = field(default=0)

    def holds(self, k: str) -> bool:
        """True while something is to come at which the turn awaited call k: it must not give it up before."""
        return self._there is not None and k in self._there.awaited

    @property
    def _savepoint(self) -> Savepoint | None:
        return self.savepoints[self.loaded] if self.loaded < len(self.savepoints) else None

    @property
    def _there(self) -> Savepoint | Below | None:
        return self._savepoint or (self.inner.parent if self.inner else None)

    def next(
        self, taken: Sequence[str], made: Collection[str], known: Collection[str]
    ) -> Load | Take | LetIn | Await | Over:
        """What comes next for a turn whose code has come to rest.

        Args:
            taken: the replies that it has taken, in order.
            made: the calls that it has made.
            known: the calls whose replies are there and were not taken.
        """
        savepoint, there = self._savepoint, self._there
        if there is None:
            return Over()
        k = next((k for k in there.taken if k not in taken and k not in self.gone), "")
        if k and k not in self.anew:
            return Take(k) if k in known else Await(k)
        if not k and (missing := there.awaited.difference(made, self.gone)):
            return Await(min(missing))
        if savepoint is not None:
            self.loaded += 1
            return Load(savepoint.state)
        inner, self.inner = self.inner, None
        return LetIn(inner) if inner else Over()
