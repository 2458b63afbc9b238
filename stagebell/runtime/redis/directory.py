"""The namespace's registry as this process knows it: where agent types live, and who subscribes to what.

The registry in the server is the truth. Its version grows with each change; a script that delivers to subscribers
compares it, so a process whose copy is old learns it before it delivers to the wrong agents.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple, cast

from autogen_core import AgentId, Subscription, TopicId, TypePrefixSubscription, TypeSubscription

from stagebell.errors import MalformedMessage, SubscriptionError, Undeliverable
from stagebell.messages.ids import partition_of
from stagebell.runtime.engine.subscriptions import Subscriptions
from stagebell.runtime.redis.keys import LeasedKeys, NamespaceKeys, PartitionKeys, ProcessKeys
from stagebell.runtime.redis.link import Link

Change = tuple[Any, str, str]

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
        self.types: dict[str, TypeEntry] = {}
        self.version = 0

    async def refresh(self) -> None:
        """Read the registry."""
        flat = await self._link.submit(lambda scripts: scripts.registry(), mortal=True)
        texts = [text.decode() for text in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        version = int(fields.pop("v", "0"))
        if version == self.version and self._fields:
            return
        self._fields, self.version = fields, version
        self.types = {name[2:]: _type_entry(value) for name, value in fields.items() if name.startswith("t:")}
        self._subscriptions = Subscriptions()
        for name, value in fields.items():
            if name.startswith("s:"):
                self._subscriptions.add(_subscription(json.loads(value)))

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
        """Where agents of a type live; the first who asks settles the number of partitions."""
        if agent_type not in self.types:
            await self.change(("nx", f"t:{agent_type}", json.dumps({"p": self._partitions})))
        return self.types[agent_type]

    def place(self, agent: AgentId) -> LeasedKeys | None:
        """The keys of the inbox that takes an agent's messages; None when its type is not known here."""
        entry = self.types.get(agent.type)
        if entry is None:
            return None
        if entry.worker:
            return ProcessKeys(self._namespace, entry.worker)
        return self.partition(agent.type, partition_of(str(agent), entry.partitions))

    async def wait_for_place(self, agent: AgentId, patience: float) -> LeasedKeys:
        """As `place`; a type that is not known may become known within `patience` seconds.

        It is not made known here: whoever hosts it decides whether it is spread over partitions or bound to a process.

        Raises:
            Undeliverable: nobody has made the type known.
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
        """The agents a topic reaches; not the sender itself."""
        return [agent for agent in self._subscriptions.recipients(topic) if agent != sender]

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
            if field.startswith("s:") and json.loads(value).get("id") == id:
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


def _subscription(described: dict[str, str]) -> Subscription:
    make = TypePrefixSubscription if described["kind"] == "prefix" else TypeSubscription
    return make(described["topic"], described["agent"], described["id"])


def _type_entry(value: str) -> TypeEntry:
    try:
        entry = cast("dict[str, Any]", json.loads(value))
        return TypeEntry(int(entry.get("p", 0)), str(entry.get("w", "")))
    except (ValueError, AttributeError) as error:
        raise MalformedMessage("registry", f"an agent type is described by {value[:80]!r}") from error


def _bound_to(value: str) -> str:
    try:
        return str(cast("dict[str, Any]", json.loads(value)).get("w", ""))
    except (ValueError, AttributeError):
        return ""
