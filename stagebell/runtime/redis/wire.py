"""Messages ↔ what is stored: with the types of this process and within its limits."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Mapping
from contextvars import Context
from typing import Any, cast
from weakref import WeakValueDictionary

from autogen_core import AgentId, TopicId
from pydantic import JsonValue

from stagebell.errors import MalformedState, StateTooLarge, UnregisteredType
from stagebell.messages.codec import check_size, pack
from stagebell.messages.envelope import FAILURE_TYPE, Envelope, is_json
from stagebell.messages.failure import describe, name_of, reason_text, restore
from stagebell.messages.registry import Encoded, TypeRegistry
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.hops import next_hop
from stagebell.runtime.engine.migrations import StateForm, StoredState
from stagebell.runtime.engine.options import is_version
from stagebell.runtime.engine.snapshots import WrittenState, as_text, check_state
from stagebell.runtime.redis.keys import leased_keys
from stagebell.runtime.redis.requests import NO_REPLY, ReplyTo
from stagebell.runtime.redis.settings import RedisSettings

logger = logging.getLogger("stagebell")


class Wire:
    """Encodes and decodes for one runtime."""

    def __init__(self, registry: TypeRegistry, settings: RedisSettings) -> None:
        self.registry = registry
        self._settings = settings
        # Exceptions raised in this process come back to callers in it as what they are, wherever their class is kept.
        self._raised: WeakValueDictionary[str, type[BaseException]] = WeakValueDictionary()

    def encode(self, message: Any) -> Encoded:
        """A message as bytes.

        Raises:
            UnregisteredType: its class is not registered.
            MalformedMessage: it cannot be written.
            MessageTooLarge: it is larger than `max_message_bytes`.
        """
        encoded = self.registry.encode(message)
        check_size(encoded.name, len(encoded.data), self._settings.max_message_bytes)
        return encoded

    def decode(self, envelope: Envelope) -> Any:
        """The message in an envelope.

        Raises:
            UnregisteredType: its type is not registered.
            MalformedMessage: it is not what the type asks for.
        """
        return self.registry.decode(envelope.type, envelope.datacontenttype, envelope.data)

    def request(
        self,
        encoded: Encoded,
        *,
        id: str,
        to: AgentId,
        sender: AgentId | None,
        reply: ReplyTo = NO_REPLY,
        chain: tuple[str, ...] = (),
        deadline: int | None = None,
    ) -> bytes:
        """The envelope of a call (with `reply`) or of a message that nobody waits for.

        Raises:
            HopLimitExceeded: it would be one hop too many.
        """
        return pack(
            Envelope(
                id=id,
                type=encoded.name,
                datacontenttype=encoded.content_type,
                kind="send",
                data=encoded.data,
                to=str(to),
                sender=_spell(sender),
                reply=spell_reply(reply),
                chain=chain,
                deadline=deadline,
                hops=next_hop(to),
            )
        )

    def told(
        self, encoded: Encoded, *, id: str, to: AgentId, sender: AgentId | None, reply: ReplyTo = NO_REPLY
    ) -> bytes:
        """The envelope of a message that nobody waits for, and that inherits no deadline and no limit of hops."""
        return Context().run(lambda: self.request(encoded, id=id, to=to, sender=sender, reply=reply))

    def publication(
        self, encoded: Encoded, *, id: str, topic: TopicId, sender: AgentId | None, deadline: int | None = None
    ) -> bytes:
        """The envelope of a publish, the same for all its subscribers. Raises as `request` does."""
        return pack(
            Envelope(
                id=id,
                type=encoded.name,
                datacontenttype=encoded.content_type,
                kind="publish",
                data=encoded.data,
                topic=str(topic),
                sender=_spell(sender),
                deadline=deadline,
                hops=next_hop(topic),
            )
        )

    def reply(self, result: Any, *, id: str, sender: AgentId) -> bytes:
        """The envelope of a reply. Raises as `encode` does."""
        encoded = self.encode(result)
        return pack(
            Envelope(
                id=id,
                type=encoded.name,
                datacontenttype=encoded.content_type,
                kind="reply",
                data=encoded.data,
                sender=str(sender),
            )
        )

    def failure(self, error: BaseException, *, id: str, sender: str) -> bytes:
        """The envelope of a failure."""
        self._raised[name_of(type(error))] = type(error)
        data = describe(error, traceback_text(error))
        return pack(Envelope(id=id, type=FAILURE_TYPE, kind="failure", data=data, sender=sender))

    def set_aside(self, envelope: Envelope, agent: AgentId, error: BaseException, to: ReplyTo) -> bytes:
        """The envelope that tells the agent at `to` of a message that was set aside."""
        name = name_of(type(error)).rpartition(":")[2]
        told = SetAside(
            agent=str(agent), type=envelope.type, data=_data(envelope), error=name, reason=reason_text(error)
        )
        encoded = self.registry.encode(told)  # of any size: it is there that the message was of a size that is allowed
        return self.told(encoded, id=to.turn_id, to=AgentId.from_str(to.field), sender=None)

    def outcome(self, envelope: Envelope) -> Any:
        """The result in a reply.

        Raises:
            BaseException: what the callee's handler raised, when the envelope is that of a failure.
            UnregisteredType: the type of the reply is not registered here.
            MalformedMessage: the reply is not what its type asks for.
        """
        if envelope.kind == "failure":
            raise restore(envelope.data, self._raised)
        try:
            return self.decode(envelope)
        except UnregisteredType:
            why = f"it is the reply of {envelope.sender}, whose turn took effect"
            raise UnregisteredType(envelope.type, why) from None

    def encode_state(self, agent: AgentId, form: StateForm, state: Mapping[str, Any]) -> bytes:
        """A state as it is stored: with the type and the version that its class gives it.

        Raises:
            MalformedState: it is not a mapping of JSON values.
            StateTooLarge: it is larger than `max_state_bytes`.
        """
        check_state(agent, state)
        try:
            text = state.text if isinstance(state, WrittenState) else _written(agent, state)
            data = f'{{"type":{as_text(form.type)},"version":{form.version},"state":{text}}}'.encode()
        except RecursionError:
            raise MalformedState(agent, "what save_state returned is nested too deep, or in itself") from None
        except (TypeError, ValueError) as error:
            raise MalformedState(agent, f"save_state must return a mapping of JSON values: {error}") from error
        if len(data) > self._settings.max_state_bytes:
            raise StateTooLarge(agent, len(data), self._settings.max_state_bytes)
        return data


def _written(agent: AgentId, state: Mapping[str, Any]) -> str:
    if not all(map(_is_text, cast("Mapping[object, Any]", state))):
        raise MalformedState(agent, "save_state must return a mapping whose keys are text")
    return as_text(dict(state))


def traceback_text(error: BaseException) -> str:
    """The traceback of any exception; never raises."""
    try:
        text = "".join(traceback.format_exception(error))
        return text.encode("utf-8", "backslashreplace").decode()
    except BaseException as broken:  # what the formatting reads of it may be the user's code
        return f"the traceback cannot be shown: formatting a {name_of(type(error))} raised {name_of(type(broken))}"


def decode_state(agent: AgentId | str, data: bytes) -> StoredState:
    """The state in `data`, with its type and version.

    Raises:
        MalformedState: it is not what `encode_state` writes.
    """
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedState(agent, f"what is stored is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise MalformedState(agent, "what is stored is not a JSON object")
    fields = cast("dict[str, Any]", found)
    type, version, state = fields.get("type"), fields.get("version"), fields.get("state")
    if not isinstance(type, str) or not is_version(version) or not isinstance(state, dict):
        raise MalformedState(
            agent, "what is stored has not the fields type (text), version (from 1) and state (object)"
        )
    return StoredState(type, cast(int, version), cast("dict[str, Any]", state))


def register_replies(registry: TypeRegistry, cls: type) -> None:
    """Make known what the handlers of an agent class return, as far as it can travel."""
    for name in dir(cls):
        for produced in getattr(getattr(cls, name, None), "produces_types", ()):
            if getattr(produced, "__name__", "") == "AnyType":  # AutoGen's mark for a handler that returns Any
                continue
            try:
                registry.add_type(produced)
            except UnregisteredType:
                logger.warning(
                    "%s.%s returns %s, which cannot travel: calls to it will fail", cls.__name__, name, produced
                )


def spell_reply(reply: ReplyTo) -> str:
    """Where a reply goes, as an envelope carries it; empty when nobody waits."""
    match reply.mode:
        case "journal":
            return f"j|{reply.tag}|{reply.turn_id}|{reply.field}"
        case "stream":
            return f"s|{reply.key}|{reply.field}"
        case "inbox":
            return f"i|{reply.tag}|{reply.turn_id}|{reply.expects}|{reply.field}"
        case _:
            return ""


def parse_reply(text: str) -> ReplyTo:
    """What `spell_reply` wrote. An address that nobody could have written is taken for none, with a log line."""
    if not text:
        return NO_REPLY
    kind, *parts = text.split("|", 4 if text.startswith("i|") else -1)
    try:
        if kind == "i" and len(parts) == 4:
            return ReplyTo.agent(leased_keys(parts[0]), parts[1], str(AgentId.from_str(parts[3])), parts[2])
        if kind == "j" and len(parts) == 3:
            return ReplyTo.caller(leased_keys(parts[0]), parts[1], parts[2])
        if kind == "s" and len(parts) == 2 and parts[0].startswith("sb:{") and parts[0].endswith("}:rep"):
            return ReplyTo.client(parts[0], parts[1])
    except ValueError:
        pass
    logger.error("a message asks for its reply at %.80r, which is no address: nobody gets the reply", text)
    return NO_REPLY


def _data(envelope: Envelope) -> JsonValue:
    """The message in an envelope as JSON data, if it is such."""
    try:
        return cast("JsonValue", json.loads(envelope.data)) if is_json(envelope.datacontenttype) else None
    except (ValueError, RecursionError):
        return None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _spell(agent: AgentId | None) -> str:
    return "" if agent is None else str(agent)
