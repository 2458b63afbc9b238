"""Messages of a partition in memory; and those of agents whose turn goes on at a former owner, see `held_elsewhere`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from autogen_core import AgentId

if TYPE_CHECKING:
    from stagebell.runtime.redis.partition import Partition


class Incoming(Protocol):
    """A message of this partition that is in memory."""

    turn_id: str
    agent: AgentId

    def forget(self) -> None:
        """It is not ours to run any more; if its turn is open, nothing of it will be committed."""
        ...

    def forget_unless_started(self) -> None:
        """The same, for a message whose turn has not started."""
        ...

    @property
    def caller_stream(self) -> str:
        """The stream on which a caller outside of all turns waits; empty when none does."""
        ...

    def end_early(self, why: str, wish: str = "") -> None:
        """Its caller waits no more ("cancel"), or has waited long enough ("deadline"), by the entry `wish` of `ctl`."""
        ...

    def let_go(self) -> bool:
        """Leave memory for a while, unless its turn has started or somebody's turn waits for it; True when it did."""
        ...

    @property
    def is_open(self) -> bool:
        """True when its turn is open."""
        ...

    @property
    def held_turn(self) -> tuple[str, str] | None:
        """Agent and turn id, when its turn is open and needs a hold (one that another turn awaits needs none)."""
        ...


class Parked:
    """A message of an agent that a former owner still holds."""

    __slots__ = ("_entry_id", "_partition", "agent", "envelope", "turn_id")
    held_turn = None
    is_open = False
    caller_stream = ""

    def __init__(self, partition: Partition, entry_id: str, turn_id: str, agent: str, envelope: bytes) -> None:
        self._partition = partition
        self._entry_id = entry_id
        self.turn_id = turn_id
        self.agent = AgentId.from_str(agent)
        self.envelope = envelope

    def forget(self) -> None:
        """It stays in the inbox for the next owner."""
        self._partition.leave(self._entry_id)

    forget_unless_started = forget

    def let_go(self) -> bool:
        """It is small enough to stay."""
        return False

    def end_early(self, why: str, wish: str = "") -> None:
        """When it is handed on."""


def parked_in(partition: Partition, agent: str) -> dict[str, Parked]:
    """The messages that wait for the end of an agent's hold, by their entry ids."""
    messages = partition.pending.items()
    return {id: each for id, each in messages if isinstance(each, Parked) and str(each.agent) == agent}


def free(partition: Partition, agent: str, consumed: Collection[str]) -> None:
    """An agent's hold is over: hand on what waited for that, but for what its former owner has consumed."""
    partition.held.discard(agent)
    for entry_id, message in parked_in(partition, agent).items():
        if entry_id in consumed:
            partition.done(entry_id)
        else:
            partition.take(entry_id, message.turn_id, agent, message.envelope)
