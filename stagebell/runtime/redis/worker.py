"""The receiving side of a process: messages of its partitions become entries in the mailboxes of its agents."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache

from autogen_core import AgentId, TopicId

from stagebell.errors import CantHandle, MalformedMessage, MessageError, UnknownVersion, UnregisteredType
from stagebell.messages.codec import unpack
from stagebell.messages.envelope import Envelope
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.hops import fresh_context
from stagebell.runtime.engine.turn import Entry
from stagebell.runtime.redis.ears import Fields
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.pausing import UNREADABLE, wait_on
from stagebell.runtime.redis.requests import NO_REPLY
from stagebell.runtime.redis.results import EndWanted
from stagebell.runtime.redis.retries import MOST_ATTEMPTS
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.turns import DurableTurn
from stagebell.runtime.redis.wire import parse_reply

logger = logging.getLogger("stagebell")

# The same few agents and topics come again and again, and reading one costs as much as reading a small message.
_agent = lru_cache(maxsize=16_384)(AgentId.from_str)
_topic = lru_cache(maxsize=16_384)(TopicId.from_str)

_UNREADABLE = Envelope(id="?", type="?", kind="publish", data=b"null")


class Receiver:
    """Takes what is read from inboxes and heard from the bell."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._paused: set[str] = set()
        self._passed_over: set[tuple[str, str]] = set()
        self.on_due: Callable[[str], None] = lambda tag: None
        self.on_free: Callable[[str, str], None] = lambda tag, stopping: None
        self.on_freed: Callable[[str, str], None] = lambda tag, agent: None
        self.on_held: Callable[[bytes], None] = lambda asked: None
        self.on_inquiry: Callable[[str, Fields], None] = lambda kind, fields: None

    def accept(self, partition: Partition, entry_id: str, turn_id: str, agent: str, raw: bytes) -> DurableTurn:
        """A message was read: put it into its agent's mailbox, or settle it when it cannot be handled."""
        if not turn_id or not agent:
            return self._set_aside_foreign(partition, entry_id, turn_id, agent)
        try:
            envelope = unpack(raw)
            id = _agent(agent)
        except UnknownVersion as error:
            return self._pause(partition, self._message(partition, entry_id, turn_id, agent, _UNREADABLE), error)
        except (MessageError, ValueError) as error:
            message = self._message(partition, entry_id, turn_id, agent, _UNREADABLE)
            message.set_aside(error, has_state=False, dead_letter=f"it cannot be read: {error}")
            return message
        message = DurableTurn(self._services, partition, entry_id, turn_id, id, envelope, parse_reply(envelope.reply))
        attempts = partition.attempts.get(turn_id, 0)
        message.careful = partition.careful
        # Two workers died while it ran: such messages run one after the other, so that only one can be to blame.
        # A call from a turn is let through, or a suspect that waits for it would wait for ever.
        message.suspect = partition.careful and attempts >= 2 and not envelope.chain
        if attempts < MOST_ATTEMPTS or not message.give_up():
            self._enqueue(partition, message, id, envelope)
        return message

    def _pause(self, partition: Partition, message: DurableTurn, error: UnknownVersion) -> DurableTurn:
        """A newer program wrote it. It stays in the inbox, with what comes after it for the same agent."""
        level = logging.DEBUG if str(message.agent) in self._paused else logging.ERROR
        self._paused.add(str(message.agent))
        text = "%s is paused here, its messages stay in their inbox: %s. They go on when a newer worker takes over"
        logger.log(level, text, message.agent, error)
        partition.hold_back(message.agent, message.fence.entry_id, str(error))
        return message

    def _set_aside_foreign(self, partition: Partition, entry_id: str, turn_id: str, agent: str) -> DurableTurn:
        message = self._message(partition, entry_id, turn_id, agent, _UNREADABLE)
        reason = "it is no message: m, a or e is missing or no text"
        logger.error("entry %s of %s goes to the dead letters: %s", entry_id, partition.keys.inbox, reason)
        message.set_aside(MalformedMessage("?", reason), has_state=False, dead_letter=reason)
        return message

    def _message(
        self, partition: Partition, entry_id: str, turn_id: str, agent: str, envelope: Envelope
    ) -> DurableTurn:
        try:
            id = _agent(agent)
        except ValueError:
            id = AgentId("unknown", agent)
        return DurableTurn(self._services, partition, entry_id, turn_id, id, envelope, NO_REPLY)

    def _enqueue(self, partition: Partition, message: DurableTurn, agent: AgentId, envelope: Envelope) -> None:
        services = self._services
        hosted = services.catalog.types.get(agent.type)
        try:
            if hosted is None:
                raise MalformedMessage(envelope.type, f"it is for {agent}, whose type is not registered here")
            if agent.key not in partition.agents and self._lives_elsewhere(partition, agent):
                raise MalformedMessage(envelope.type, f"it is for {agent}, which lives in another partition")
            content = services.wire.decode(envelope)
            sender = _agent(envelope.sender) if envelope.sender else None
            topic = _topic(envelope.topic) if envelope.topic else None
        except UnregisteredType as error:
            self._not_handled(message, agent, envelope, error)
            return
        except (MessageError, ValueError) as error:
            logger.error("%s cannot read message %s of type %s: %s", agent, envelope.id, envelope.type, error)
            message.set_aside(error, has_state=False)
            return
        if not message.limit():
            return
        activation = hosted.activation(agent)
        partition.agents[agent.key] = activation
        message.entry = entry = Entry(
            content,
            services.context if envelope.hops is None else fresh_context(envelope.hops),
            sender=sender,
            topic_id=topic,
            is_rpc=envelope.kind == "send",
            message_id=envelope.id,
            receipt=message,
            deadline=envelope.deadline,
        )
        entry.activation = activation
        if UNREADABLE in activation.barred and not self._look_again(partition, message, activation):
            return
        services.dispatcher.enqueue(activation, entry)
        if not hosted.reentrant and activation.top is not None:
            services.find_circles(activation)

    def _look_again(self, partition: Partition, message: DurableTurn, activation: Activation) -> bool:
        """For a call to a paused agent, with what is published to it before; a publish waits (False)."""
        if not message.answers:
            wait_on(message)
            return False
        for agent, head in partition.holding.paused_heads():
            waiting = partition.pending.get(head)
            if agent == str(activation.id) and isinstance(waiting, DurableTurn):
                waiting.look_again()
        self._services.dispatcher.unbar(activation, UNREADABLE)
        return True

    def _lives_elsewhere(self, partition: Partition, agent: AgentId) -> bool:
        place = self._services.directory.place(agent)
        return isinstance(place, PartitionKeys) and place.inbox != partition.keys.inbox

    def _not_handled(self, message: DurableTurn, agent: AgentId, envelope: Envelope, error: UnregisteredType) -> None:
        """No handler takes the type, or it would be registered: refused to a caller, passed over for a publish."""
        if envelope.kind == "send":
            message.set_aside(CantHandle(agent, envelope.type), has_state=False)
        else:
            pair = agent.type, envelope.type
            level = logging.INFO if pair in self._passed_over else logging.WARNING  # the first of its kind is news
            self._passed_over.add(pair)
            logger.log(level, "%s has no handler for %s, such messages are passed over: %s", agent.type, pair[1], error)
            message.pass_over()

    # -- the bell

    def hear(self, id: str, fields: Fields) -> None:
        """The bell rang."""
        match fields[b"k"]:
            case b"in":
                tag, entry_id, before, turn_id, agent = fields[b"h"].decode().split(" ", 4)
                partition = self._services.partitions.get(tag)
                if isinstance(partition, Partition):
                    partition.heard(entry_id, before, turn_id, agent, fields.get(b"e"))
            case b"end":
                self._hear_end(fields)
            case b"rep":
                self._hear_reply(fields)
            case b"inq" | b"circle" as kind:
                self.on_inquiry(kind.decode(), fields)
            case b"due":
                self.on_due(fields[b"p"].decode())
            case b"held" if b"e" in fields:
                self.on_held(fields[b"e"])
            case b"free":
                stops = fields.get(b"w") == b"stop"
                self.on_free(fields[b"p"].decode(), fields.get(b"o", b"?").decode() if stops else "")
            case b"freed":
                self.on_freed(fields[b"p"].decode(), fields[b"a"].decode())
            case _:
                pass  # a newer program may ring for more

    def _hear_end(self, fields: Fields) -> None:
        partition = self._services.partitions.get(fields[b"p"].decode())
        if isinstance(partition, Partition):
            told, turn_id, entry_id, why = (fields[name].decode() for name in (b"c", b"m", b"i", b"w"))
            partition.ends.hear(EndWanted(told, turn_id, entry_id, why))

    def _hear_reply(self, fields: Fields) -> None:
        turn = self._services.calling.get(fields[b"t"].decode())
        if turn is None:
            return
        k, payload = fields[b"j"].decode(), fields.get(b"e")
        request = turn.calls.entry_ids.get(k, "").encode()
        if payload is None or not request:
            self._services.dispatcher.spawn(turn.calls.poll(k))
        elif fields.get(b"i") == request:  # else it answers the call of an earlier attempt
            turn.calls.heard(k, payload)
