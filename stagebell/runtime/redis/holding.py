"""Messages that stay in the inbox, since their agent may not take them now.

An agent has a message at its head that has to wait: its next attempt is not due, or this program cannot read it. What
comes after it for the same agent has to wait too, and would fill the credit of the partition. So it is not taken into
memory: only the ids of the entries are known, until the head is gone and the inbox is read again from the first of
them.
Calls from turns are let through: somebody's turn is open until they are answered, perhaps that of the agent itself. To
an agent whose state cannot be read all calls are, since they end in the error that says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from stagebell.runtime.redis.lookahead import EntryId, parse_entry_id


class Held:
    """What is held back for one agent: the `heads` that it waits for, in memory, and the `ids` that are not."""

    __slots__ = ("answers", "heads", "ids", "reason")

    def __init__(self) -> None:
        self.heads: set[str] = set()
        self.ids: dict[str, None] = {}
        self.reason = ""  # why the agent is paused, if it is: until another program takes over
        self.answers = False  # calls from outside of turns are let through, too

    @property
    def waiting(self) -> int:
        """How many messages wait, the heads included."""
        return len(self.heads) + len(self.ids)


class Holding:
    """The agents of one partition for which something is held back."""

    def __init__(self) -> None:
        self._agents: dict[str, Held] = {}

    def __bool__(self) -> bool:
        return bool(self._agents)

    def __contains__(self, agent: str) -> bool:
        return agent in self._agents

    def of(self, agent: str) -> Held:
        """What is held back for an agent; nothing yet when it is the first time."""
        held = self._agents.get(agent)
        if held is None:
            held = self._agents[agent] = Held()
        return held

    def ids(self) -> list[str]:
        """All entries that are held back, but for the heads."""
        return [entry_id for held in self._agents.values() for entry_id in held.ids]

    def has(self, entry_id: str) -> bool:
        """True for an entry that is held back."""
        return any(entry_id in held.ids for held in self._agents.values())

    def release(self, agent: str, head: str) -> EntryId | None:
        """A head is gone: the entry after which to read again, None when there is nothing that waited for it alone."""
        held = self._agents.get(agent)
        if held is None:
            return None
        held.heads.discard(head)
        if held.heads:
            return None
        del self._agents[agent]
        return _before(min(map(parse_entry_id, held.ids))) if held.ids else None

    def clear(self) -> None:
        """Everything is read again."""
        self._agents.clear()

    @property
    def heads(self) -> int:
        """How many messages are in memory and wait for a while, so that they take no credit."""
        return sum(len(held.heads) for held in self._agents.values()) if self._agents else 0

    @property
    def entries(self) -> int:
        """How many entries are held back."""
        return sum(len(held.ids) for held in self._agents.values()) if self._agents else 0

    def paused(self) -> Iterator[tuple[str, Held]]:
        """The agents that wait for another program."""
        return ((agent, held) for agent, held in self._agents.items() if held.reason)

    def paused_heads(self) -> list[tuple[str, str]]:
        """Each message that this program cannot read, as agent and entry id."""
        return [(agent, head) for agent, held in self.paused() for head in held.heads]


def _before(id: EntryId) -> EntryId:
    time, number = id
    return (time, number - 1) if number else (time - 1, 2**64 - 1)
