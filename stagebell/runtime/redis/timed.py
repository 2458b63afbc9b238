"""Messages that come later, as the server keeps them: `nonce|every_ms|envelope`.

The nonce is new each time a timer is set, so a timer that was replaced is not taken for the one before. Each time that
such a message comes it is a message of its own, whose id says which timer, when, and by which setting.
"""

from __future__ import annotations

from contextvars import Context
from dataclasses import replace

from autogen_core import AgentId, TopicId

from stagebell.errors import MessageError
from stagebell.messages.codec import pack, unpack
from stagebell.messages.ids import new_message_id, turn_id
from stagebell.messages.registry import Encoded
from stagebell.runtime.engine.timers import Plan, TimerId
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.effects import Effect, Names
from stagebell.runtime.redis.keys import EventsKeys, LeasedKeys
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.timer_scripts import DueTimer
from stagebell.runtime.redis.wire import Wire

_UNREADABLE = "?"


class Timed:
    """A timer that is to be set: which one, when, and what it brings."""

    def __init__(self, id: TimerId, plan: Plan, encoded: Encoded, sender: AgentId | None, wire: Wire) -> None:
        self.id = id
        self.nonce = new_message_id()[:12]
        self.when = f"+{plan.delay_ms}" if plan.at_ms is None else str(plan.at_ms)
        to, key = id.to, id.key
        if isinstance(to, AgentId):
            envelope = wire.told(encoded, id=key, to=to, sender=sender)
        else:  # in no context of whoever sets it, as in `told`
            envelope = Context().run(lambda: wire.publication(encoded, id=key, topic=to, sender=sender))
        self.message = f"{self.nonce}|{plan.every_ms}|".encode() + envelope

    def effects(self, keys: LeasedKeys) -> list[Effect]:
        """Set it with a commit, in this partition."""
        timer = Effect(Names(keys.due, keys.timed, "+"), self.id.key, self.when, self.message)
        return [timer, Effect(Names(keys.own, keys.own, "!" + keys.tag), "", "", b"")]


def place_of(to: AgentId | TopicId, directory: Directory) -> LeasedKeys | None:
    """Where the timers for this recipient are kept: those for topics with the stream of events."""
    return directory.place(to) if isinstance(to, AgentId) else EventsKeys(directory.keys.namespace)


def cancelling(keys: LeasedKeys, id: TimerId) -> Effect:
    """Cancel a timer with a commit."""
    return Effect(Names(keys.due, keys.timed, "+"), id.key, "", b"")


def delivery_of(keys: LeasedKeys, due: DueTimer) -> tuple[bytes, Delivery]:
    """The nonce of a timer that is due, and the message that it brings.

    What cannot be read is delivered as it is: whoever takes it sets it aside with the reason.
    """
    nonce, _, rest = due.message.partition(b"|")
    raw = rest.partition(b"|")[2]
    id = f"{due.timer}.{due.when}.{nonce.decode('ascii', 'replace')}"
    is_event = isinstance(keys, EventsKeys)
    try:
        envelope = replace(unpack(raw), id=id)
    except MessageError:
        return nonce, Delivery(keys, turn_id(id, _UNREADABLE), "" if is_event else _UNREADABLE, raw)
    agent = "" if is_event else envelope.to or _UNREADABLE
    return nonce, Delivery(keys, turn_id(id, agent), agent, pack(envelope))
