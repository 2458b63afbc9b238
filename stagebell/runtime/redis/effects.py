"""What a turn does with its commit beside sending messages, as outputs that the script takes for what they are.

An output of a commit is a message for an inbox, unless its tag begins with a character that no tag can begin with:
`lua/lib/effects.lua` says which, and what is made of such an output.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import NO_REPLY, ReplyTo
from stagebell.runtime.redis.wire import parse_reply, spell_reply

_ANY = "*"


class Names(NamedTuple):
    """The two keys of an effect, and what it is, in the places that those of a message have."""

    inbox: str
    own: str
    tag: str


class Effect(NamedTuple):
    """An output that is no message; its fields have the places, and the names, of those of `requests.Delivery`."""

    keys: Names
    turn_id: str
    agent: str
    envelope: bytes


class Mark(NamedTuple):
    """What the callee's partition keeps of a call whose reply comes later.

    `if_given_up` is what the callee is told when nobody waits any more, `deadline` that of the call.
    """

    id: str
    agent: str
    sender: str
    reply_to: ReplyTo
    if_given_up: bytes = b""
    deadline: int | None = None

    def pack(self) -> bytes:
        """As it is stored."""
        described: dict[str, str | int] = {"id": self.id, "to": self.agent, "from": self.sender}
        described["reply"] = spell_reply(self.reply_to)
        if self.if_given_up:
            described["given_up"] = self.if_given_up.decode()
        if self.deadline is not None:
            described["deadline"] = self.deadline
        return json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()


def read_mark(raw: bytes) -> Mark | None:
    """What `Mark.pack` wrote; None for what it did not write."""
    try:
        found: object = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    described = cast("dict[str, Any]", found)
    id, agent, sender, reply = (described.get(name) for name in ("id", "to", "from", "reply"))
    deadline = described.get("deadline")
    if not (isinstance(id, str) and isinstance(agent, str) and isinstance(sender, str) and isinstance(reply, str)):
        return None
    word = described.get("given_up")
    told = word.encode() if isinstance(word, str) else b""
    return Mark(id, agent, sender, parse_reply(reply), told, deadline if type(deadline) is int else None)


def set_mark(keys: LeasedKeys, turn_id: str, mark: Mark) -> Effect:
    """The reply to the call that this turn handled comes later."""
    return Effect(Names(keys.later, keys.later, "#"), turn_id, _ANY, mark.pack())


def take_mark(keys: LeasedKeys, turn_id: str, stored: bytes) -> Effect:
    """The call is answered now; the commit is refused when another has answered it."""
    return Effect(Names(keys.later, keys.later, "#"), turn_id, stored.decode(), b"")


def give_reply(reply_to: ReplyTo, payload: bytes) -> list[Effect]:
    """The answer to such a call."""
    if reply_to is NO_REPLY:
        return []
    if reply_to.mode == "stream":
        return [Effect(Names(reply_to.key, reply_to.key, "&"), reply_to.field, "", payload)]
    keys = Names(reply_to.key, reply_to.own, "&" + reply_to.tag)
    return [Effect(keys, reply_to.turn_id, reply_to.field, payload)]
