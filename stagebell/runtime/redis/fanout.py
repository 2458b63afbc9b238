"""Events from other systems: one XADD each, turned into a message for every subscriber, exactly once from there on.

The stream of events is leased like a partition; the worker that owns it reads an event, looks up the subscribers, and
hands it to all of them with the removal of the event in one step. An event that cannot be read goes to the dead letters
of the stream with its reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from autogen_core import AgentId, TopicId

from stagebell.errors import MessageError, ServerRefused, ServerUnavailable, UnregisteredType
from stagebell.messages.codec import check_size, pack, read_event, unpack
from stagebell.messages.envelope import Envelope
from stagebell.messages.ids import turn_id
from stagebell.runtime.redis.ears import Fields
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import FanoutReply
from stagebell.runtime.redis.services import Services

logger = logging.getLogger("stagebell")

_BATCH = 100
_LOOK_AGAIN = 1.0  # seconds; the registry's version is compared in every hand-over anyway
_MOST_TOPICS = 10_000


class EventsPartition:
    """The stream of events, owned; see `partition.Owned`."""

    def __init__(self, services: Services, keys: LeasedKeys, token: str, on_lose: Callable[[], None]) -> None:
        self.keys = keys
        self.token = token
        self.owned = True
        self.careful = False
        self.attempts: dict[str, int] = {}
        self._services = services
        self._on_lose = on_lose
        self._working = False
        self._again = False
        self._draining = False
        self._stuck_by = ""
        self._without_subscriber: dict[str, float] = {}

    @property
    def busy(self) -> bool:
        """True while events are being handed on."""
        return self._working

    def hear(self, id: str, fields: Fields) -> None:
        """An event was added."""
        self.read()

    def read(self) -> None:
        """Hand on the events there are."""
        self._again = True
        if not self._working and self.owned and not self._draining:
            self._working = True
            self._services.dispatcher.spawn(self._hand_on())

    def drain(self) -> None:
        """Start no more."""
        self._draining = True

    def lose(self) -> None:
        """Another worker hands on the events now."""
        if self.owned:
            self.owned = False
            self._on_lose()

    def let_go(self) -> None:
        """The runtime stops."""
        self.lose()

    async def audit(self) -> None:
        """Look whether an event was missed."""
        if await self._services.link.ask("XLEN", self.keys.inbox):
            self.read()

    async def _hand_on(self) -> None:
        try:
            await self._hand_on_all()
        except ServerRefused as error:
            self._stuck(str(error))
        except ServerUnavailable as error:
            self._again = True  # the audit begins anew when the server is back
            logger.debug("events are not handed on now: %s", error)
        finally:
            self._working = False

    async def _hand_on_all(self) -> None:
        while self._again and self.owned and not self._draining:
            self._again = False
            entries: list[Any] = await self._services.link.ask("XRANGE", self.keys.inbox, "-", "+", "COUNT", _BATCH)
            if entries:
                self._again = True
                await self._hand_on_batch([(id.decode(), flat) for id, flat in entries])

    async def _hand_on_batch(self, entries: list[tuple[str, list[bytes]]]) -> None:
        prepared = [(id, await self._prepare(id, flat)) for id, flat in entries]
        version = self._services.directory.version
        answers = await asyncio.gather(*(self._deliver(id, event, version) for id, event in prepared))
        statuses = {answer.status for answer in answers}
        if "FENCED" in statuses:
            self._services.on_lost(self)
        elif "STALE_REGISTRY" in statuses:
            await self._services.directory.refresh()
        elif statuses & {"BADKEY", "BADARGS"}:
            self._stuck(", ".join({f"{a.status} {a.detail}" for a in answers if a.status.startswith("BAD")}))

    def _stuck(self, reason: str) -> None:
        """Neither handed on nor set aside: told once; the audit tries again."""
        self._again = False
        if reason != self._stuck_by:
            self._stuck_by = reason
            logger.error("events cannot be handed on, nor set aside: %s", reason)

    async def _deliver(self, id: str, event: list[Delivery] | str, version: int) -> FanoutReply:
        try:
            return await self._ask(id, event, version)
        except ServerRefused as refused:
            reason = f"the server refused to hand it on: {refused}"
            return await self._ask(id, reason, version)

    def _ask(self, id: str, event: list[Delivery] | str, version: int) -> asyncio.Future[FanoutReply]:
        reason = event if isinstance(event, str) else ""
        deliveries = [] if isinstance(event, str) else event
        if reason:
            logger.error("event %s goes to the dead letters (%s): %s", id, self.keys.dlq, reason)
        return self._services.link.submit(
            lambda scripts: scripts.fanout(
                self.keys,
                token=self.token,
                entry_id=id,
                deliveries=deliveries,
                dead_letter=reason,
                registry_version=None if reason else version,
            )
        )

    async def _prepare(self, id: str, flat: list[bytes]) -> list[Delivery] | str:
        """The messages an event becomes, or why it becomes none."""
        digest = blake2b(b"\0".join([id.encode(), *flat]), digest_size=12).hexdigest()
        try:
            event = _read(dict(zip(_names(flat), flat[1::2], strict=True)), f"event-{digest}")
            check_size(event.type, len(event.data), self._services.settings.max_message_bytes)
            await self._require_known(event.type)
            return await self._deliveries(event)
        except (MessageError, ValueError) as error:
            return str(error)

    async def _require_known(self, name: str) -> None:
        directory, registry = self._services.directory, self._services.wire.registry
        if name in registry.names() or name in directory.message_types():
            return
        await directory.refresh()
        if name not in directory.message_types():
            raise UnregisteredType(name)

    async def _deliveries(self, event: Envelope) -> list[Delivery]:
        topic = TopicId.from_str(event.topic)
        sender = AgentId.from_str(event.sender) if event.sender else None
        agents: list[AgentId] = self._services.directory.recipients(topic, sender)
        if not agents:
            agents = await self._look_again(topic, sender)
        envelope = pack(event)
        return [
            Delivery(await self._services.directory.find_place(a), turn_id(event.id, str(a)), str(a), envelope)
            for a in agents
        ]

    async def _look_again(self, topic: TopicId, sender: AgentId | None) -> list[AgentId]:
        """Nobody subscribes, as far as is known here. Asked and reported once in a while for each topic."""
        now = asyncio.get_running_loop().time()
        if now < self._without_subscriber.get(str(topic), 0.0):
            return []
        await self._services.directory.refresh_if_changed()
        agents = self._services.directory.recipients(topic, sender)
        if not agents:
            logger.warning("nobody subscribes to topic %s: events on it reach no agent", topic)
            if len(self._without_subscriber) > _MOST_TOPICS:
                self._without_subscriber.clear()
            self._without_subscriber[str(topic)] = now + _LOOK_AGAIN
        return agents


def _read(fields: dict[str, bytes], default_id: str) -> Envelope:
    """What another system has published in single fields; or a publish of ours that is due now, a whole envelope."""
    if "e" in fields and "type" not in fields:
        return unpack(fields["e"])
    return read_event(fields, default_id)


def _names(flat: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "backslashreplace") for name in flat[::2]]
