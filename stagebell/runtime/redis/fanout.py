"""Events from other systems: one XADD each, turned into a message for every subscriber, exactly once from there on.

The stream of events is leased like a partition; the worker that owns it reads an event, looks up the subscribers, and
hands it to all of them with the removal of the event in one step. An event that cannot be read goes to the dead letters
of the stream with its reason.

What holds at all times
    - Events reach each inbox in the order of the stream. Several are asked for at once; each names the one before it,
      and is refused while that one is still there.
    - While an inbox is full (`inbox_limit`), events for it stay in the stream (`waiting_events`). So is nothing that
      comes from outside started above that mark. An inbox whose agent type nobody hosts has no limit: nobody would ever
      make room in it, and what waits for it would be in the way of all others.
    - Everything up to `_position` was handed on or waits. When something else became of an event, and every now and
      then while some wait, the stream is read from its beginning again.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import TimerHandle
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
from stagebell.runtime.redis.scripts import event_digest
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.waiting_events import WaitingEvents

logger = logging.getLogger("stagebell")

_BATCH = 100
_LOOK_AGAIN = 1.0  # seconds; the registry's version is compared in every hand-over anyway
_MOST_TOPICS = 10_000


class _Event:
    """An event, and the messages that it becomes, or why it becomes none."""

    __slots__ = ("deliveries", "digest", "id", "inboxes", "reason")

    def __init__(self, id: str, digest: str, becomes: list[Delivery] | str) -> None:
        self.id = id
        self.digest = digest
        self.reason = becomes if isinstance(becomes, str) else ""
        self.deliveries = [] if isinstance(becomes, str) else becomes
        self.inboxes = [delivery.keys.inbox for delivery in self.deliveries]


class EventsPartition:
    """The stream of events, owned; see `partition.Owned`. `is_hosted` says whether a worker hosts an agent type."""

    def __init__(
        self,
        services: Services,
        keys: LeasedKeys,
        token: str,
        on_lose: Callable[[], None],
        is_hosted: Callable[[str], bool],
    ) -> None:
        self.keys = keys
        self.token = token
        self.owned = True
        self.careful = False
        self.attempts: dict[str, int] = {}
        self._services = services
        self._on_lose = on_lose
        self._working = False
        self._again = False
        self._anew = False
        self._position = "-"
        self._waiting = WaitingEvents(services.settings.read_credit)
        self._alarm: TimerHandle | None = None
        self._is_hosted = is_hosted
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
        if self._alarm is not None:
            self._alarm.cancel()
        if self.owned:
            self.owned = False
            self._on_lose()

    def let_go(self) -> None:
        """The runtime stops."""
        self.lose()

    async def audit(self) -> None:
        """Look whether an event was missed."""
        if await self._services.link.ask("XLEN", self.keys.inbox):
            self._anew = True
            self.read()

    async def _hand_on(self) -> None:
        try:
            await self._hand_on_all()
        except ServerRefused as error:
            self._anew = True
            self._stuck(str(error))
        except ServerUnavailable as error:
            self._anew = True  # by the audit, when the server is back
            logger.debug("events are not handed on now: %s", error)
        finally:
            self._working = False

    async def _hand_on_all(self) -> None:
        while self._again and self.owned and not self._draining:
            self._again = False
            if self._anew or not self._waiting:
                self._anew, self._position = False, "-"
                self._waiting.try_again()
            if self._waiting.full:
                break
            read = "XRANGE", self.keys.inbox, self._position, "+", "COUNT", _BATCH
            entries: list[Any] = await self._services.link.ask(*read)
            if entries:
                self._again, self._position = True, f"({entries[-1][0].decode()}"
                await self._hand_on_batch([(id.decode(), flat) for id, flat in entries])
        if self._waiting and self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._waiting.pause(), self._try_again)

    def _try_again(self) -> None:
        self._alarm, self._anew = None, True
        self.read()

    async def _hand_on_batch(self, entries: list[tuple[str, list[bytes]]]) -> None:
        events = [_Event(id, event_digest(flat), await self._prepare(id, flat)) for id, flat in entries]
        while events:
            ready: list[_Event] = []
            for event in events:
                if self._waiting.has_to_wait(event.inboxes):
                    self._waiting.add(event.id, event.inboxes)
                else:
                    ready.append(event)
            events = await self._hand_on_ready(ready)

    async def _hand_on_ready(self, events: list[_Event]) -> list[_Event]:
        """Hand them on; returns those to be tried once more, since what was before them has to wait."""
        version = self._services.directory.version
        before = ["", *(event.id for event in events)]
        answers = await asyncio.gather(*(self._deliver(*each, version) for each in zip(events, before, strict=False)))
        statuses = {answer.status for answer in answers}
        if "FENCED" in statuses:
            self._services.on_lost(self)
        elif "STALE_REGISTRY" in statuses:
            self._anew = True
            await self._services.directory.refresh()
        else:
            return self._left(list(zip(events, answers, strict=True)))
        return []

    def _left(self, outcomes: list[tuple[_Event, FanoutReply]]) -> list[_Event]:
        spoilt = [(event, answer) for event, answer in outcomes if answer.status in ("BADKEY", "BADARGS")]
        if spoilt:
            self._stuck(", ".join({f"{answer.status} {answer.detail}" for _, answer in spoilt}))
        refused = [event for event, answer in outcomes if answer.status == "BUSY"]
        # Of the refused the inboxes of the first are full, unless it came behind one that is stuck.
        for event in [event for event, _ in spoilt] or refused[:1]:
            self._waiting.add(event.id, event.inboxes)
        return refused if spoilt else refused[1:]

    def _stuck(self, reason: str) -> None:
        """Neither handed on nor set aside: told once, and tried again."""
        if reason != self._stuck_by:
            self._stuck_by = reason
            logger.error("events cannot be handed on, nor set aside: %s", reason)

    async def _deliver(self, event: _Event, after: str, version: int) -> FanoutReply:
        try:
            return await self._ask(event, after, version)
        except ServerRefused as refused:
            reason = f"the server refused to hand it on: {refused}"
            return await self._ask(_Event(event.id, event.digest, reason), "", version)

    def _ask(self, event: _Event, after: str, version: int) -> asyncio.Future[FanoutReply]:
        if event.reason:
            logger.error("event %s goes to the dead letters (%s): %s", event.id, self.keys.dlq, event.reason)
        return self._services.link.submit(
            lambda scripts: scripts.fanout(
                self.keys,
                token=self.token,
                entry_id=event.id,
                digest=event.digest,
                deliveries=event.deliveries,
                caps=[self._cap(delivery) for delivery in event.deliveries],
                after=after,
                dead_letter=event.reason,
                registry_version=None if event.reason else version,
            )
        )

    def _cap(self, delivery: Delivery) -> int:
        agent_type = delivery.agent.partition("/")[0]
        return self._services.settings.inbox_limit if self._is_hosted(agent_type) else 0

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
