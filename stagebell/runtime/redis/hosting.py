"""What a runtime on a server hosts: agent types and subscriptions, kept here and told to the server while it runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, cast

from autogen_core import InterventionHandler, MessageSerializer, Subscription
from opentelemetry.trace import TracerProvider

from stagebell.errors import MessageError, RuntimeNotRunning, TypeConflict
from stagebell.runtime.engine.addressed import require_subscription
from stagebell.runtime.engine.catalog import HostedType
from stagebell.runtime.engine.clock import Clock
from stagebell.runtime.engine.host import Host
from stagebell.runtime.engine.options import saves_state
from stagebell.runtime.engine.subscriptions import Subscriptions
from stagebell.runtime.redis.directory import check_subscription
from stagebell.runtime.redis.node import Node
from stagebell.runtime.redis.storage import stored_of
from stagebell.runtime.redis.turns import DurableTurn
from stagebell.runtime.redis.wire import register_replies

logger = logging.getLogger("stagebell")


class Phase(Enum):
    """Where a runtime is in its life; the value completes the sentence "the runtime …"."""

    NEW = "was not started: call `await start()` first"
    STARTING = "is starting: wait until `start()` has returned"
    RUNNING = "is running"
    STOPPED = "is stopped: call `await start()` first"
    CRASHED = "has crashed, as a test wanted: make a new one"


class Hosting(Host):
    """Base of `RedisRuntime`: types and subscriptions may be registered before it runs, and while it runs."""

    def __init__(
        self,
        *,
        intervention_handlers: Sequence[InterventionHandler] | None,
        tracer_provider: TracerProvider | None,
        cancel_grace: float,
        max_call_depth: int,
        warn_after: float,
        clock: Clock | None,
    ) -> None:
        super().__init__(
            intervention_handlers=intervention_handlers,
            tracer_provider=tracer_provider,
            cancel_grace=cancel_grace,
            max_call_depth=max_call_depth,
            warn_after=warn_after,
            clock=clock,
        )
        self._phase = Phase.NEW
        self._node: Node | None = None
        self._subscriptions = Subscriptions()
        self._added: list[Subscription] = []
        self._removed: list[Subscription] = []

    async def _hosted(self, hosted: HostedType) -> None:
        if hosted.interleaved and not hosted.process_bound and hosted.agent_class and saves_state(hosted.agent_class):
            del self._catalog.types[hosted.name]
            raise ValueError(
                f"{hosted.agent_class.__name__} is interleaved and saves state: its turns would commit states that "
                "know nothing of each other. Make it serial, or leave save_state out"
            )
        if self._node is not None:
            await self._announce(self._node, hosted)

    async def _announce(self, node: Node, hosted: HostedType) -> None:
        self._register_handled(hosted)
        self._register_replies(hosted)
        await node.host(hosted)

    def _register_handled(self, hosted: HostedType) -> None:
        """Know what the handlers take before the first message comes, which may be waiting already.

        AutoGen's `register` makes it known after the agent type, and says what is wrong with it.
        """
        if hosted.process_bound:
            return
        handled = cast("list[tuple[Any, Any]]", getattr(hosted.agent_class, "_handles_types", list)())
        for _, serializers in handled:
            with suppress(MessageError):
                self._registry.add(serializers)

    def _register_replies(self, hosted: HostedType) -> None:
        if hosted.agent_class is not None:
            try:
                register_replies(self._registry, hosted.agent_class)
            except TypeConflict as error:
                if not hosted.process_bound:
                    raise
                logger.warning("%s answers in its process only: %s", hosted.name, error)

    def add_message_serializer(self, serializer: MessageSerializer[Any] | Sequence[MessageSerializer[Any]]) -> None:
        """Make message types known here, and their names known in the namespace.

        Raises:
            TypeConflict: another class is known under the same wire name.
            WrongType: it is no serializer.
        """
        super().add_message_serializer(serializer)
        if self._node is not None:
            self._dispatcher.spawn(self._node.announce_message_types())

    async def add_subscription(self, subscription: Subscription) -> None:
        """Let a topic reach an agent type, from all processes of the namespace.

        Raises:
            SubscriptionError: this runtime has an equal one, or it is of a class that the server cannot keep.
            WrongType: it is no subscription.
        """
        require_subscription(subscription)
        check_subscription(subscription)
        self._subscriptions.add(subscription)
        self._added.append(subscription)
        if self._node is not None:
            await self._store_subscription(self._node, subscription)

    async def _subscribe_bound(self, name: str) -> None:
        """A process-bound type is held here from now on: its subscriptions went with its former process."""
        for subscription in self._added:
            if self._node is not None and getattr(subscription, "agent_type", "") == name:
                await self._store_subscription(self._node, subscription)

    async def _store_subscription(self, node: Node, subscription: Subscription) -> None:
        if (worker := self._worker_of(node, subscription)) is not None:
            await node.services.directory.add_subscription(subscription, worker)

    def _worker_of(self, node: Node, subscription: Subscription) -> str | None:
        """The process with which a subscription ends: this one, "" for none; None when another holds the type."""
        agent_type = getattr(subscription, "agent_type", "")
        hosted = self._catalog.types.get(agent_type)
        if hosted is None or not hosted.process_bound:
            return ""
        return node.client.name if agent_type in node.services.bound_here else None  # else: see _subscribe_bound

    async def remove_subscription(self, id: str) -> None:
        """Take a subscription back, from the whole namespace.

        Raises:
            SubscriptionError: there is none of this id.
        """
        mine = next((subscription for subscription in self._added if subscription.id == id), None)
        if mine is not None:
            self._subscriptions.remove(id)
            self._added.remove(mine)
            if self._node is not None:
                await self._node.services.directory.forget_subscription(mine)
            else:
                self._removed.append(mine)  # the next start removes it from the server
        else:
            await self._running("remove_subscription").services.directory.remove_subscription(id)

    async def _announce_all(self, node: Node) -> None:
        """Tell the server what was registered before the start."""
        for hosted in self._catalog.types.values():
            self._forget_loaded(node, hosted)
            self._register_replies(hosted)
        for subscription in self._removed:
            await node.services.directory.forget_subscription(subscription)
        self._removed.clear()
        await self._host_all(node)

    async def _announce_again(self) -> None:
        """The server may have forgotten it."""
        if self._node is not None:
            await self._host_all(self._node)

    async def _host_all(self, node: Node) -> None:
        types = list(self._catalog.types.values())
        await self._subscribe_all(node, [hosted.name for hosted in types if not hosted.process_bound])
        for hosted in types:
            await node.host(hosted)
        await self._subscribe_all(node, [])  # those of process-bound types that are held now
        await node.announce_message_types()

    async def _subscribe_all(self, node: Node, types: list[str]) -> None:
        known = [(subscription, self._worker_of(node, subscription)) for subscription in self._added]
        subscriptions = [(subscription, worker) for subscription, worker in known if worker is not None]
        await node.services.directory.announce(types, subscriptions)

    def _running(self, what: str) -> Node:
        if self._node is None or (self._phase is not Phase.RUNNING and self._durable_turn() is None):
            raise RuntimeNotRunning(f"{what} was refused: the runtime {self._phase.value}")
        return self._node

    def _forget_loaded(self, node: Node, hosted: HostedType) -> None:
        """While the runtime was stopped others may have run these agents: load them anew."""
        for activation in list(hosted.live.values()):
            if not hosted.process_bound and stored_of(activation).keeps:
                node.services.passivation.leave(activation)

    def _durable_turn(self) -> DurableTurn | None:
        """The turn whose commit takes the effects of the code that is running; None outside of turns."""
        turn = self._caller()
        receipt = turn.receipt if turn is not None else None
        if turn is None or turn.activation.hosted.process_bound or not isinstance(receipt, DurableTurn):
            return None
        return receipt if receipt.takes_effects else None
