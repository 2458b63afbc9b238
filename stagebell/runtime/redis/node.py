"""One running process of a namespace that hosts agents: its parts, put together, and its life from open to close."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any

from autogen_core import AgentId

from stagebell.errors import RuntimeNotRunning, ServerError
from stagebell.messages.registry import TypeRegistry
from stagebell.runtime.engine.catalog import Catalog, HostedType
from stagebell.runtime.engine.clock import Clock
from stagebell.runtime.engine.dispatch import Dispatcher
from stagebell.runtime.redis.bound import BoundTypes
from stagebell.runtime.redis.callers import end_orphans
from stagebell.runtime.redis.client import Client
from stagebell.runtime.redis.commit_order import CommitOrder
from stagebell.runtime.redis.due_timers import DueTimers
from stagebell.runtime.redis.ears import Stream
from stagebell.runtime.redis.expiring import ExpiringMarks
from stagebell.runtime.redis.fanout import EventsPartition
from stagebell.runtime.redis.held_here import AskedHold
from stagebell.runtime.redis.holding import Held
from stagebell.runtime.redis.inquiries import Inquiries
from stagebell.runtime.redis.keys import EventsKeys, LeasedKeys, ProcessKeys
from stagebell.runtime.redis.later import DurableReplies
from stagebell.runtime.redis.lease_thread import LeaseKeeper
from stagebell.runtime.redis.membership import describe_member
from stagebell.runtime.redis.owned import Owned
from stagebell.runtime.redis.ownership import Ownership
from stagebell.runtime.redis.parked import Incoming
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.passivation import Passivation
from stagebell.runtime.redis.rights import WORKER_COMMANDS
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.settings import RedisSettings
from stagebell.runtime.redis.storage import DurableStorage
from stagebell.runtime.redis.worker import Receiver

logger = logging.getLogger("stagebell")

_IDLE_LOOK = 0.02
_MOST_PAUSED = 100  # agents that a worker names
_LAST_ANSWERS = 2.0  # seconds in which the server should have answered the commits of the last turns


class Node:
    """The parts of one runtime between `start` and `stop`."""

    _handing_over: asyncio.Future[None] | None = None
    _hosts = False
    _has_had_inbox = False

    def __init__(
        self,
        url: str,
        namespace: str,
        settings: RedisSettings,
        registry: TypeRegistry,
        catalog: Catalog,
        dispatcher: Dispatcher,
        max_call_depth: int,
        clock: Clock,
        keeper: type[LeaseKeeper],
    ) -> None:
        self.client = Client(url, namespace, registry, settings, max_call_depth, WORKER_COMMANDS, clock)
        self.services = Services(
            worker=self.client.name,
            settings=settings,
            link=self.client.link,
            wire=self.client.wire,
            directory=self.client.directory,
            replies=self.client.replies,
            transport=self.client.transport,
            commit_order=CommitOrder(self.client.directory, dispatcher.spawn),
            catalog=catalog,
            dispatcher=dispatcher,
            publish_here=_nobody_here,
            max_call_depth=max_call_depth,
            clock=clock,
        )
        self.services.passivation = Passivation(self.services)
        self.services.marks = ExpiringMarks(self.client.link, clock)
        self.bound = BoundTypes(self.services, namespace, self.client.membership)
        self.inquiries = Inquiries(self.services)
        self._url = url
        self._namespace = namespace
        self._due_timers = DueTimers(self.services)
        self._storage = DurableStorage(self.services)
        self._later = DurableReplies(self.services)
        self._receiver = Receiver(self.services)
        self._leases = keeper(url, namespace, self.client.name, settings, self._lease_lost)
        self._leases.cut_off_for = self.client.link.away_for
        self._ownership = Ownership(
            self.services, namespace, self._leases, self.client.membership, self._receiver.accept
        )
        self._process = ProcessKeys(namespace, self.client.name)
        self._started_ms = clock.now_ms()
        self._announced: set[str] = set()
        self._highest_version = 0
        self._told_paused: dict[str, int] = {}
        self.on_forgotten: Callable[[], Coroutine[Any, Any, None]] | None = None

    # -- life

    async def open(self) -> None:
        """Connect; see `Client.open`."""
        await self.client.open()
        self.services.on_lost = self._partition_lost
        self.services.find_circles = self.inquiries.ask_at_once
        self._receiver.on_inquiry = self.inquiries.hear
        self._receiver.on_due = self._due_timers.heard
        self._receiver.on_free = self._ownership.given_up
        self._receiver.on_freed = self._ownership.held_elsewhere.freed
        self._receiver.on_held = lambda asked: self._ownership.held_here.asked(AskedHold.unpack(asked))
        self.client.ears.add(Stream(self._process.bell, self._receiver.hear, trim=True))
        self.client.link.on_restored.append(self._restored)
        self._leases.start(self._description())
        await self.client.listen()

    async def work(self) -> None:
        """Claim partitions, and look after everything, from now on."""
        self._ownership.start()
        self.inquiries.start()
        chores = self.client.upkeep.chores
        if self.services.settings.cancel_when_caller_gone:
            chores.append(self._end_orphans)
        chores += [self.bound.look, self._poll_calls, self._audit, self._tell_paused, self._look_for_loss]
        chores += [self.services.passivation.look, self._due_timers.look]

    def drain(self) -> None:
        """Start no more turns."""
        for partition in self.services.partitions.values():
            partition.drain()

    def hand_over(self) -> None:
        """Give all partitions to others; turns that are open go on here, for as long as a stop lets them."""
        self._leases.describe(self._description())
        settings = self.services.settings
        seconds = settings.stop_grace + 2 * self.services.dispatcher.grace + settings.lease
        self._handing_over = asyncio.ensure_future(self._ownership.hand_over(int(seconds * 1000)))

    async def close(self, *, abrupt: bool = False) -> None:
        """Give everything up and disconnect."""
        self.services.stopping = True
        await self.inquiries.close()
        self._due_timers.close()
        if not abrupt and not (self.client.link.connected and await self._give_everything_up()):
            self._leases.leave_the_rest()
        await self._leases.stop()
        await self.client.close(RuntimeNotRunning("the runtime was stopped before the reply came"))

    async def _give_everything_up(self) -> bool:
        """In order; False when it could not be done."""
        try:
            async with asyncio.timeout(self.services.settings.stop_grace + 1.0):
                if self._handing_over is not None:
                    await self._handing_over
                await self._ownership.held_here.finish(_LAST_ANSWERS)
                await self._ownership.stop()
                process = self._process
                if in_order := await self.bound.withdraw():
                    await self.client.link.ask("DEL", process.own, process.ctl, process.due, process.timed)
                await self.client.hear_last_replies()
        except Exception as error:
            logger.warning("worker %s could not give everything up in order: %r", self.client.name, error)
            return False
        return in_order

    async def crash(self, why: str) -> None:
        """End as a killed process does: nothing is given up, and nothing more reaches the server.

        Calls that wait here end in `RuntimeNotRunning`. Turns are interrupted once the connections are cut.
        """
        self.services.stopping = True
        self.client.link.break_off(why)
        self.client.ears.break_off()
        self._leases.fall_silent()
        self._due_timers.close()
        self.client.replies.fail_all(RuntimeNotRunning(why))
        await self.services.dispatcher.abort(why)
        await self.inquiries.close()
        await self._ownership.claim_no_more()
        await self._leases.stop()
        await self.client.close(RuntimeNotRunning(why))

    def freeze(self) -> None:
        """Let nothing reach or leave this process until `thaw`, start no turn, and renew no lease."""
        self.services.dispatcher.hold()
        self._leases.hold()
        self.client.link.hold()
        self.client.ears.hold()

    def thaw(self) -> None:
        """Go on where `freeze` has held everything, whatever happened meanwhile."""
        self.client.link.go_on()
        self.client.ears.go_on()
        self._leases.go_on()
        self.services.dispatcher.go_on()

    # -- what it hosts

    async def host(self, hosted: HostedType) -> None:
        """Take part in running an agent type."""
        if not self._hosts:
            self._hosts = True
            self._ownership.host_leased(self._process, self._make_process_inbox)
            self._ownership.host_leased(EventsKeys(self._namespace), self._make_events)
        if hosted.process_bound:
            await self.bound.host(hosted.name)
        else:
            hosted.storage = self._storage
            hosted.later = self._later
            await self._ownership.host(hosted)
        self.client.membership.own_types.add(hosted.name)
        self._leases.describe(self._description())

    async def announce_message_types(self) -> None:
        """Make the names of message types known in the namespace, for events from outside."""
        registry, directory = self.services.wire.registry, self.services.directory
        new = [name for name in registry.names() if name not in self._announced and not name.startswith("stagebell.")]
        self._announced.update(new)
        known = directory.message_types()
        for name in new:
            if name in known and registry.schema_digest(name) != known[name]:
                logger.warning(
                    "message type %r has another schema here than where it was registered first: messages that do not "
                    "fit this one are refused",
                    name,
                )
        unknown = [name for name in new if name not in known]
        if unknown:
            await directory.change(*(("nx", f"m:{name}", registry.schema_digest(name)) for name in unknown))

    async def settle_ownership(self, agent: AgentId) -> bool:
        """True when this process runs the agent; waits until its partition has an owner."""
        keys = await self.services.directory.find_place(agent)
        deadline = asyncio.get_running_loop().time() + self.services.settings.lease + 1.0
        while asyncio.get_running_loop().time() < deadline:
            partition = self.services.partitions.get(keys.tag)
            if isinstance(partition, Partition):
                hosted = self.services.catalog.hosted(agent.type)
                partition.agents[agent.key] = hosted.activation(agent)
                return True
            if await self.services.link.ask("HGET", keys.own, "owner"):
                return False
            await asyncio.sleep(_IDLE_LOOK)
        return False

    async def wait_idle(self) -> None:
        """Wait until no inbox of the namespace holds a message that can run, and nothing runs here."""
        while True:
            await self.services.dispatcher.wait_idle()
            if not self.services.calling and await self._nothing_waits() and self.services.dispatcher.idle:
                return
            await asyncio.sleep(_IDLE_LOOK)

    async def _nothing_waits(self) -> bool:
        directory = self.services.directory
        await directory.refresh_if_changed()
        inboxes = [EventsKeys(self._namespace).inbox, self._process.inbox]
        for name, entry in directory.types.items():
            if not self.client.membership.missing_for(name):
                inboxes += [directory.partition(name, number).inbox for number in range(entry.partitions)]
        waiting = await self.services.link.submit(lambda scripts: scripts.idle(inboxes))
        return waiting <= sum(held.waiting for held in self._paused().values())  # paused ones do not count

    # -- what comes and goes

    def _make_process_inbox(self, token: str, keys: LeasedKeys) -> Owned:
        credit, services = self.services.settings.read_credit, self.services
        accept, self._has_had_inbox = self._accept_with_care if self._has_had_inbox else self._receiver.accept, True
        return Partition(keys, token, services.link, accept, services.passivation.leave, credit=credit)

    def _accept_with_care(self, partition: Partition, *message: Any) -> Incoming:
        """The inbox is ours again: of what a late bell brings the server is asked first whether others have ended it.

        What an agent does in memory cannot be taken back when its commit is refused.
        """
        partition.careful = True
        return self._receiver.accept(partition, *message)

    def _make_events(self, token: str, keys: LeasedKeys) -> Owned:
        ears, is_hosted = self.client.ears, self.client.membership.is_hosted
        events = EventsPartition(self.services, keys, token, lambda: ears.remove(keys.inbox), is_hosted)
        self.client.ears.add(Stream(keys.inbox, events.hear, trim=False, position="$"))
        return events

    def _lease_lost(self, tag: str, token: str) -> None:
        self._ownership.lost(tag, token)
        if tag == self._process.tag:  # others took this process for dead, and its process-bound types with it
            self.bound.lost()

    def _partition_lost(self, partition: Owned) -> None:
        self._ownership.lost(partition.keys.tag, partition.token)

    def _restored(self) -> None:
        """A new connection: the server may have lost writes, and bells were missed."""
        self._announce_again()
        for partition in list(self.services.partitions.values()):
            self.services.dispatcher.spawn(_audit_if_connected(partition))

    def _announce_again(self) -> None:
        """The server may have forgotten what this process hosts and subscribes to."""
        self.services.directory.invalidate()
        self._highest_version = 0
        self._announced.clear()
        if self.on_forgotten is not None and not self.services.stopping:
            self.services.dispatcher.spawn(self.on_forgotten())

    async def _look_for_loss(self) -> None:
        """The server may lose what it knows without ending the connection, as after a FLUSHALL."""
        directory = self.services.directory
        version = int(await self.services.link.ask("HGET", directory.keys.reg, "v") or 0)
        if version < self._highest_version or directory.lacks(self._ownership.hosted):
            logger.warning("the server has lost the registry, or an older one is there now: announcing all again")
            self._announce_again()
        else:
            self._highest_version = version

    # -- chores

    async def _poll_calls(self) -> None:
        """A bell that told of a reply may be lost: ask the journals of turns that have waited for a while."""
        now = asyncio.get_running_loop().time()
        for turn in list(self.services.calling.values()):
            for k, call in list(turn.calls.open.items()):
                if now - call.since > 1.0:
                    await turn.calls.poll(k)
                    await self.client.calls_watch.give_up_if_undeliverable(k, call, turn.calls.entry_ids.get(k, ""))

    async def _end_orphans(self) -> None:
        owned = list(self.services.partitions.values())
        await end_orphans(self.client.link, [partition for partition in owned if isinstance(partition, Partition)])

    async def _audit(self) -> None:
        owned = list(self.services.partitions.values())
        await asyncio.gather(
            *(partition.audit() for partition in owned),
            *(partition.ends.look() for partition in owned if isinstance(partition, Partition)),
        )

    def _description(self) -> dict[str, str]:
        types = sorted(self.client.membership.own_types)
        paused = {agent: held.waiting for agent, held in islice(self._paused().items(), _MOST_PAUSED)}
        return describe_member(
            types, platform.node(), os.getpid(), self._started_ms, paused, stopping=self.services.stopping
        )

    def _paused(self) -> dict[str, Held]:
        """The agents here that wait for a newer program."""
        partitions = [owned for owned in self.services.partitions.values() if isinstance(owned, Partition)]
        return {agent: held for partition in partitions for agent, held in partition.holding.paused()}

    async def _tell_paused(self) -> None:
        paused = {agent: held.waiting for agent, held in self._paused().items()}
        if paused != self._told_paused:
            self._told_paused = paused
            self._leases.describe(self._description())


async def _audit_if_connected(partition: Owned) -> None:
    try:
        await partition.audit()
    except ServerError as error:  # the connection broke again; the next one brings the next audit
        logger.debug("%s is not compared with the server now: %s", partition.keys.tag, error)


def _nobody_here(*_: object) -> None:
    """Takes the place of the runtime's own until it is set."""
