"""What the scripts are asked with, as values."""

from __future__ import annotations

from typing import Literal, NamedTuple

from stagebell.runtime.redis.keys import LeasedKeys


class Delivery(NamedTuple):
    """A message for an inbox: the keys it belongs to, its turn id there, "type/key" and the envelope."""

    keys: LeasedKeys
    turn_id: str
    agent: str
    envelope: bytes


class ReplyTo(NamedTuple):
    """Where the outcome of a turn goes; made by `caller`, `client`, `agent` or NO_REPLY."""

    mode: Literal["", "journal", "stream", "inbox"]
    key: str
    own: str
    field: str
    turn_id: str
    tag: str
    expects: str = ""

    @classmethod
    def caller(cls, keys: LeasedKeys, turn_id: str, k: str) -> ReplyTo:
        """To call k of the turn `turn_id`, in the caller's partition."""
        return cls("journal", keys.journal(turn_id), keys.own, k, turn_id, keys.tag)

    @classmethod
    def client(cls, stream: str, call_id: str) -> ReplyTo:
        """To a client outside of all turns, or a task that outlived its turn, by its stream."""
        return cls("stream", stream, "", call_id, "", "")

    @classmethod
    def agent(cls, keys: LeasedKeys, turn_id: str, agent: str, expects: str = "") -> ReplyTo:
        """To an agent, as a message of its own with this turn id, unless the answer is of the type that it expects."""
        return cls("inbox", keys.inbox, keys.own, agent, turn_id, keys.tag, expects)

    @property
    def waits(self) -> bool:
        """True when a caller waits."""
        return self.mode in ("journal", "stream")


NO_REPLY = ReplyTo("", "", "", "", "", "")


class Nested(NamedTuple):
    """The parent of a nested turn, the place where it stands (see `savepoints`), and the savepoints known of it."""

    parent_turn: str
    place: str
    known_savepoints: int


class Turn(NamedTuple):
    """What every script about a turn needs: the fence, the agent ("type/key"), the input and its turn id."""

    keys: LeasedKeys
    token: str
    agent: str
    entry_id: str
    turn_id: str

    @property
    def fence(self) -> tuple[str, str, str, str]:
        """Token, agent, entry id and turn id, in the order in which all scripts take them."""
        return self.token, self.agent, self.entry_id, self.turn_id

    @property
    def state_key(self) -> str:
        """The key of the agent's state."""
        return self.keys.state(self.agent.partition("/")[2])


class LeftOpen(NamedTuple):
    """Calls that tasks of an ended turn still await, and the stream that takes their replies."""

    calls: tuple[str, ...]
    stream: str


NONE_SEEN = -1
"""For the number of savepoints that a turn knows of when it has not asked."""

NOTHING_OPEN = LeftOpen((), "")
