"""Which calls may overlap: decided by what their tools declare, without a clock and without running anything.

A tool that declares nothing runs alone. One that is `parallel_safe`, or says what it reads and writes, may overlap with
another such tool, unless one of the two writes what the other reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from stagebell.tools.declared import Declared


class Access(NamedTuple):
    """What a call touches; `alone` when nobody said so."""

    alone: bool = True
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, declared: Declared) -> Self:
        """What calls of a tool touch."""
        said = declared.parallel_safe or bool(declared.reads or declared.writes)
        return cls(not said, declared.reads, declared.writes)

    def conflicts_with(self, other: Access) -> bool:
        """True when the two may not overlap."""
        if self.alone or other.alone:
            return True
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


def may_start(access: Access, earlier: Iterable[Access]) -> bool:
    """Whether a call may start while calls that came before it go on or wait."""
    return not any(access.conflicts_with(other) for other in earlier)


def groups(accesses: Sequence[Access]) -> list[list[int]]:
    """Calls, by their positions, in groups that run one after the other; those of one group may overlap.

    A call is never in an earlier group than one before it, so the order of calls that conflict is kept.
    """
    found: list[list[int]] = []
    for at, access in enumerate(accesses):
        if found and may_start(access, (accesses[other] for other in found[-1])):
            found[-1].append(at)
        else:
            found.append([at])
    return found
