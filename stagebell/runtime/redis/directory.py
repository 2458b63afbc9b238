"""The namespace's registry as this process knows it: where agent types live, and who subscribes to what.

The registry in the server is the truth. Its version grows with each change; a script that delivers to subscribers
compares it, so a process whose copy is old learns it before it delivers to the wrong agents. A field that cannot be
read is logged and left out, as if it were not there: it must not take the others along.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from autogen_core import AgentId, Subscription, TopicId, TypePrefixSubscription, TypeSubscription

from stagebell.errors import MalformedMessage, SubscriptionError, Undeliverable
from stagebell.messages.ids import partition_of
from stagebell.runtime.engine.subscriptions import Subscriptions
from stagebell.runtime.redis.keys import LeasedKeys, NamespaceKeys, PartitionKeys, ProcessKeys
from stagebell.runtime.redis.link import Link

logger = logging.getLogger("stagebell")

Change = tuple[Any, str, str]

_MOST_PARTITIONS = 4096
_MOST_PLACES = 50_000
_AT_ONCE = 1000  # changes in one script
_LOOK = 0.1  # seconds between two looks for a type that is not known yet


class TypeEntry(NamedTuple):
    """Where agents of a type live: in `partitions` parts, or all in the process `worker`."""

    partitions: int
    worker: str


class Directory:
    """A copy of the registry."""

    def __init__(self, link: Link, namespace: str, partitions: int) -> None:
        self._link = link
        self._namespace = namespace
        self._partitions = partitions
        self.keys = NamespaceKeys(namespace)
        self._keys: dict[tuple[str, int], LeasedKeys] = {}
        self._subscriptions = Subscriptions()
        self._fields: dict[str, str] = {}
        self._spoilt_types: frozenset[str] = frozenset()
        self._places: dict[str, LeasedKeys] = {}  # by agent: those that were asked for last
        self._unreadable: set[tuple[str, str]] = set()
        self.types: dict[str, TypeEntry] = {}
        self.version = 0

    async def refresh(self) -> None:
        """Read the registry."""
        flat = await self._link.submit(lambda scripts: scripts.registry(), mortal=True)
        texts = [text.decode("utf-8", "backslashreplace") for text in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        version = int(fields.pop("v", "0"))
        if version == self.version and self._fields:
            return
        types: dict[str, TypeEntry] = {}
        subscriptions = Subscriptions()
        for name, value in fields.items():
            try:
                if name.startswith("t:"):
                    types[name[2:]] = _type_entry(value)
                elif name.startswith("s:") and not _outlives_its_worker(value, fields):
                    subscriptions.add(parse_subscription(value))
            except (ValueError, RecursionError) as error:
                self._cannot_read(name, value, error)
        self.types, self._subscriptions, self._fields, self.version = types, subscriptions, fields, version
        named = (name[2:] for name in fields if name.startswith("t:"))
        self._spoilt_types = frozenset(name for name in named if name not in types)
        self._places.clear()

    def _cannot_read(self, name: str, value: str, error: Exception) -> None:
        if (name, value) not in self._unreadable:
            self._unreadable.add((name, value))
            logger.error("the registry's field %r is left out, it cannot be read: %.80r (%s)", name, value, error)

    async def refresh_if_changed(self) -> None:
        """Read the registry when its version is not the one known here."""
        version = await self._link.submit(lambda scripts: scripts.registry_version(), mortal=True)
        if int(version or 0) != self.version:
            await self.refresh()

    async def change(self, *changes: Change) -> None:
        """Change the registry, and read it again."""
        await self._link.submit(lambda scripts: scripts.register(changes))
        await self.refresh()

    # -- agent types

    async def ensure_type(self, agent_type: str) -> TypeEntry:
        """Where agents of a type live; the first who asks settles the number of partitions.

        Raises:
            MalformedMessage: what the registry says of it cannot be read.
        """
        if agent_type not in self.types:
            await self.change(("nx", f"t:{agent_type}", json.dumps({"p": self._partitions})))
        entry = self.types.get(agent_type)
        if entry is None:
            value = self._fields.get(f"t:{agent_type}", "")
            raise MalformedMessage("registry", f"agent type {agent_type!r} is described by {value[:80]!r}")
        return entry

    def place(self, agent: AgentId) -> LeasedKeys | None:
        """The keys of the inbox that takes an agent's messages; None when its type is not known here."""
        text = str(agent)
        place = self._places.get(text)
        if place is None and (entry := self.types.get(agent.type)) is not None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            if entry.worker:
                place = ProcessKeys(self._namespace, entry.worker)
            else:
                place = self.partition(agent.type, partition_of(text, entry.partitions))
            self._places[text] = place
        return place

    async def wait_for_place(self, agent: AgentId, patience: float) -> LeasedKeys:
        """As `place`; a type that is not known may become known within `patience` seconds.

        It is not made known here: whoever hosts it decides whether it is spread over partitions or bound to a process.

        Raises:
            Undeliverable: nobody has made the type known, or what the registry says of it cannot be read.
        """
        place = self.place(agent)
        if place is not None:
            return place
        deadline = asyncio.get_running_loop().time() + patience
        while True:
            await self.refresh_if_changed()
            place = self.place(agent)
            if place is not None:
                return place
            if agent.type in self._spoilt_types:
                raise Undeliverable(agent, f"what the registry says of agent type {agent.type!r} cannot be read")
            if asyncio.get_running_loop().time() >= deadline:
                reason = f"no worker has hosted agent type {agent.type!r} for {patience:g} s: start one that does"
                raise Undeliverable(agent, reason)
            await asyncio.sleep(_LOOK)

    def checked_version(self, place: LeasedKeys) -> int | None:
        """The version that a delivery to this place depends on: processes end, partitions stay."""
        return self.version if isinstance(place, ProcessKeys) else None

    def invalidate(self) -> None:
        """The server may have lost writes: read the registry again, whatever its version says."""
        self.version = -1

    async def find_place(self, agent: AgentId) -> LeasedKeys:
        """As `place`; a type that is not known becomes known."""
        place = self.place(agent)
        if place is None:
            await self.ensure_type(agent.type)
            place = self.place(agent)
            assert place is not None
        return place

    def partition(self, agent_type: str, number: int) -> LeasedKeys:
        """The keys of one partition."""
        keys = self._keys.get((agent_type, number))
        if keys is None:
            keys = self._keys[agent_type, number] = PartitionKeys(self._namespace, agent_type, number)
        return keys

    # -- subscriptions

    def recipients(self, topic: TopicId, sender: AgentId | None) -> list[AgentId]:
        """The agents a topic reaches; not the sender itself, and none of a type that the registry spoils."""
        found = self._subscriptions.recipients(topic)
        if sender is None and not self._spoilt_types:
            return list(found)
        return [agent for agent in found if agent != sender and agent.type not in self._spoilt_types]

    async def add_subscription(self, subscription: Subscription, worker: str) -> None:
        """Store a subscription; `worker` when the agent type is bound to that process, and ends with it.

        Raises:
            SubscriptionError: it is of a class that cannot be stored.
        """
        field, described = _describe(subscription)
        if worker:
            described["w"] = worker
        await self.change(("set" if worker else "nx", field, json.dumps(described)))

    async def remove_subscription(self, id: str) -> None:
        """Remove a subscription by the id it was added with, here or elsewhere.

        Raises:
            SubscriptionError: there is none.
        """
        await self.refresh()
        for field, value in self._fields.items():
            if field.startswith("s:") and _parsed(value).get("id") == id:
                await self.change(("del", field, ""))
                return
        raise SubscriptionError(f"Subscription does not exist: {id}")

    async def forget_subscription(self, subscription: Subscription) -> None:
        """Remove what `add_subscription` stored."""
        await self.change(("del", _describe(subscription)[0], ""))

    # -- what ends with a process

    async def forget_worker(self, worker: str) -> list[str]:
        """Remove the types and subscriptions that were bound to a process which has ended; returns the types."""
        await self.refresh()
        fields = [(name, value) for name, value in self._fields.items() if name[:2] in ("t:", "s:")]
        bound = [("del", name, value) for name, value in fields if _bound_to(value) == worker]
        if bound:  # unless somebody has taken it over meanwhile, and so changed the value
            await self.change(*bound)
        return [name[2:] for _, name, _ in bound if name.startswith("t:")]

    def message_types(self) -> dict[str, str]:
        """The wire names known in the namespace, with the digest of each one's schema."""
        return {name[2:]: value for name, value in self._fields.items() if name.startswith("m:")}

    def lacks(self, types: Iterable[str]) -> list[str]:
        """Those of these agent types of which the registry says nothing at all."""
        return [name for name in types if f"t:{name}" not in self._fields]

    # -- many at once

    async def announce(self, types: Iterable[str], subscriptions: Iterable[tuple[Subscription, str]]) -> None:
        """As `ensure_type` and `add_subscription` for each of them, but in one change; most are known already.

        Args:
            types: agent types that are spread over partitions.
            subscriptions: each with its `worker`, see `add_subscription`.
        """
        await self.refresh()
        changes: list[Change] = [("nx", f"t:{name}", json.dumps({"p": self._partitions})) for name in self.lacks(types)]
        for subscription, worker in subscriptions:
            field, described = _describe(subscription)
            value = json.dumps({**described, "w": worker} if worker else described)
            if field not in self._fields or (worker and self._fields[field] != value):
                changes.append(("set" if worker else "nx", field, value))
        for start in range(0, len(changes), _AT_ONCE):
            await self.change(*changes[start : start + _AT_ONCE])


def check_subscription(subscription: Subscription) -> None:
    """Raises SubscriptionError for a class that the server cannot keep."""
    _describe(subscription)


def _describe(subscription: Subscription) -> tuple[str, dict[str, str]]:
    cls = type(subscription)
    if getattr(cls, "is_match", None) not in (TypeSubscription.is_match, TypePrefixSubscription.is_match):
        raise SubscriptionError(
            f"{cls.__name__} decides itself what it matches, which the server cannot know: RedisRuntime takes "
            "TypeSubscription, TypePrefixSubscription and what derives from them without changing that"
        )
    if isinstance(subscription, TypePrefixSubscription):
        kind, topic = "prefix", subscription.topic_type_prefix
    elif isinstance(subscription, TypeSubscription):
        kind, topic = "type", subscription.topic_type
    else:
        raise SubscriptionError(
            f"{type(subscription).__name__} cannot be stored in the server: RedisRuntime takes TypeSubscription, "
            "TypePrefixSubscription and what derives from them"
        )
    described = {"kind": kind, "topic": topic, "agent": subscription.agent_type, "id": subscription.id}
    return f"s:{kind}:{topic}:{subscription.agent_type}", described


def parse_subscription(value: str) -> Subscription:
    """Raises ValueError when it cannot be read."""
    described = _parsed(value)
    kind, topic, agent, id = (described.get(name) for name in ("kind", "topic", "agent", "id"))
    if not (isinstance(topic, str) and isinstance(agent, str) and isinstance(id, str)):
        raise ValueError("topic, agent and id must be text")
    AgentId(agent, "any")  # raises ValueError for a type that no agent can have
    match kind:
        case "prefix":
            return TypePrefixSubscription(topic, agent, id)
        case "type":
            return TypeSubscription(topic, agent, id)
        case _:
            raise ValueError(f"kind {kind!r} is not known")


def _type_entry(value: str) -> TypeEntry:
    """Raises ValueError when it cannot be read."""
    entry = _parsed(value)
    worker, partitions = entry.get("w", ""), entry.get("p", 0)
    if worker and isinstance(worker, str):
        return TypeEntry(0, worker)
    if type(partitions) is not int or not 1 <= partitions <= _MOST_PARTITIONS:
        raise ValueError(f"p must be a number from 1 to {_MOST_PARTITIONS}, or w the name of a worker")
    return TypeEntry(partitions, "")


def _parsed(value: str) -> dict[str, Any]:
    """A JSON object; empty when it is none."""
    try:
        entry = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}


def _outlives_its_worker(value: str, fields: Mapping[str, str]) -> bool:
    """True for a subscription of a process that does not hold the agent type: it came too late, or was left there."""
    described = _parsed(value) if '"w"' in value else {}
    return bool(described.get("w")) and _bound_to(fields.get(f"t:{described.get('agent')}", "")) != described["w"]


def _bound_to(value: str) -> str:
    return str(_parsed(value).get("w", ""))
