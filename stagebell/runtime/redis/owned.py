"""What a worker may own by a lease: a partition of agents, the inbox of a process, or the events from outside."""

from __future__ import annotations

from typing import Protocol

from stagebell.runtime.redis.keys import LeasedKeys


class Owned(Protocol):
    """What a worker owns by a lease."""

    keys: LeasedKeys
    token: str
    owned: bool
    careful: bool
    attempts: dict[str, int]

    @property
    def busy(self) -> bool:
        """True while messages of it are in memory."""
        ...

    def read(self) -> None:
        """Read on, when there is more to read."""
        ...

    def drain(self) -> None:
        """Start nothing more."""
        ...

    def lose(self) -> None:
        """It belongs to another worker now."""
        ...

    def let_go(self) -> None:
        """The runtime stops."""
        ...

    async def audit(self) -> None:
        """Compare memory with the server."""
        ...
