"""Who is told that a message came to nothing, when no caller waits: see `messages.set_aside`.

    told with `expects` ──▶ another answer, or a failure ──▶ its sender, in place of a reply
    a dead letter       ──▶ of an agent that wants to know ──▶ that agent itself

Either way it is a message in an inbox, and comes with the step that ends the turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogen_core import AgentId

from stagebell.errors import CantHandle, MessageError
from stagebell.messages.envelope import Envelope
from stagebell.messages.ids import turn_id
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.outcome import hears_of_set_aside
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import NO_REPLY, ReplyTo

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services


def address_of(sender: AgentId, keys: LeasedKeys, message_id: str, expects: str) -> ReplyTo:
    """Where the sender of a message is told that it was not answered as it expects."""
    return ReplyTo.agent(keys, turn_id(f"{message_id}~back", str(sender)), str(sender), expects)


def answer_for(services: Services, to: ReplyTo, envelope: Envelope, agent: AgentId, result: Any) -> bytes:
    """The reply of a turn that returned `result`; nothing for a sender that gets what it expects."""
    if to.mode != "inbox":
        return services.wire.reply(result, id=envelope.id, sender=agent)
    try:
        if services.wire.registry.name_of(result) == to.expects:
            return b""
    except MessageError:
        pass  # of a class that nobody knows
    return services.wire.set_aside(envelope, agent, CantHandle(agent, envelope.type), to)


def failure_for(services: Services, to: ReplyTo, envelope: Envelope, agent: AgentId, error: BaseException) -> bytes:
    """The reply of a turn that failed."""
    if to.mode == "inbox":
        return services.wire.set_aside(envelope, agent, error, to)
    return services.wire.failure(error, id=envelope.id, sender=str(agent)) if to.waits else b""


def word_to_itself(
    services: Services, keys: LeasedKeys, entry_id: str, envelope: Envelope, agent: AgentId, error: BaseException
) -> tuple[ReplyTo, bytes]:
    """What an agent is told of a dead letter of its own, and where; nothing unless it wants to know."""
    hosted = services.catalog.types.get(agent.type)
    if hosted is None or not hears_of_set_aside(hosted.class_of(agent)):
        return NO_REPLY, b""
    if envelope.type == services.wire.registry.name_of_class(SetAside):
        return NO_REPLY, b""  # that would never end
    to = ReplyTo.agent(keys, turn_id(f"{envelope.id}~{entry_id}~aside", str(agent)), str(agent))
    return to, services.wire.set_aside(envelope, agent, error, to)
