"""Which partitions this worker owns, and the steps by which they come and go.

    free or expired ──acquire──▶ owned ──lease lost──▶ forgotten
                                   │
                                   └─ more than our share, or stop: release; turns that are open go on (`held_here`)

What holds at all times
    - The lease only says who should work; the token that came with it is the fence, and every effect is checked
      against it in the server.
    - A partition whose owner is not heard of is taken when its lease ends, by whoever asks first. A free one is taken
      by a worker that has less than its share (partitions / workers that host the type, rounded up).
    - A partition is given up whether its agents have something to do or not: turns that are open are ended here under
      holds. But never while an agent is in memory that cannot be moved because it saves no state.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from asyncio import Task
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from uuid import uuid4
from zlib import crc32

from stagebell.errors import ServerError
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.catalog import HostedType
from stagebell.runtime.redis.held_elsewhere import HeldElsewhere
from stagebell.runtime.redis.held_here import HeldHere, agents_not_held
from stagebell.runtime.redis.keys import LeasedKeys, NamespaceKeys
from stagebell.runtime.redis.lease_thread import LeaseKeeper
from stagebell.runtime.redis.membership import Membership
from stagebell.runtime.redis.owned import Owned
from stagebell.runtime.redis.partition import Accept, Partition
from stagebell.runtime.redis.results import Grant, Taken
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.storage import stored_of

logger = logging.getLogger("stagebell")

_TICK = 0.2
_SOON = 0.005
_PATIENCE = 1.0
_WHILE_ALIVE_MS = 24 * 3_600_000  # the hold of a worker that ends is broken anyway

Make = Callable[[str, LeasedKeys], Owned]


class Ownership:
    """The leases of one worker, for the agent types in `hosted`."""

    def __init__(
        self, services: Services, namespace: str, leases: LeaseKeeper, membership: Membership, accept: Accept
    ) -> None:
        self._namespace = namespace
        self._services = services
        self._leases = leases
        self._membership = membership
        self._accept = accept
        self.held_here = HeldHere(services)
        self.held_elsewhere = HeldElsewhere(services, membership)
        self._wake = asyncio.Event()
        self._next_try: dict[str, float] = {}
        self._claiming: set[str] = set()
        self.hosted: dict[str, HostedType] = {}
        self._extra: dict[str, tuple[LeasedKeys, Make]] = {}
        self._task: Task[None] | None = None
        self._moves: set[str] = set()
        self._lost_tags: list[str] = []
        self._next_move: dict[str, float] = {}

    # -- what this worker is for

    async def host(self, hosted: HostedType) -> None:
        """Take part in running an agent type."""
        self.hosted[hosted.name] = hosted
        await self._services.directory.ensure_type(hosted.name)
        await self._claim_type(hosted.name)

    def host_leased(self, keys: LeasedKeys, make: Make) -> None:
        """Take part in something that is leased as one piece; `make(token, keys)` when it becomes ours."""
        self._extra[keys.tag] = keys, make

    def start(self) -> None:
        """Claim from now on."""
        self._task = asyncio.get_running_loop().create_task(self._claim_for_ever())

    async def stop(self) -> None:
        """Claim no more, and give everything up. Turns that are open lose their fence."""
        await self.claim_no_more()
        await self._let_go(list(self._services.partitions.values()))

    async def claim_no_more(self) -> None:
        """Claim no more; what is owned stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def hand_over(self, hold_ms: int) -> None:
        """The runtime stops: give everything up at once. Turns that are open go on under their holds.

        The inbox of this process is kept while messages of its process-bound agents are in memory: nobody else could
        run them.
        """
        partitions = list(self._services.partitions.values())
        shared = [each for each in partitions if isinstance(each, Partition) and each.keys.tag not in self._extra]
        rest = [each for each in partitions if each not in shared and not each.busy]
        await asyncio.gather(self._let_go(rest), *(self._release_held(each, hold_ms) for each in shared))

    def _release_held(
        self, partition: Partition, hold_ms: int, done_with: Callable[[Activation], None] = lambda activation: None
    ) -> Awaitable[None]:
        turns = partition.hand_over()
        released = self._release(partition, turns, hold_ms)
        self.held_here.add(partition, done_with)
        return released

    async def _let_go(self, partitions: list[Owned]) -> None:
        for partition in partitions:
            partition.let_go()
        await asyncio.gather(*(self._release(partition) for partition in partitions))

    def given_up(self, tag: str, stopping: str) -> None:
        """Somebody gave this up: the worker that is `stopping`, then anybody may take it; or who had too many ("")."""
        if stopping:
            self._membership.note_stopping(stopping)
            self._next_try[tag] = asyncio.get_running_loop().time()
        else:
            self._next_try.pop(tag, None)
        self._wake.set()

    def owns(self, keys: LeasedKeys) -> Owned | None:
        """The partition of these keys, when it is ours."""
        return self._services.partitions.get(keys.tag)

    # -- claiming

    async def _claim_for_ever(self) -> None:
        while True:
            try:
                await self._claim_all()
                self._give_up_surplus()
            except ServerError as error:  # claiming goes on when the server is back
                logger.debug("claiming is interrupted: %s", error)
            except Exception:
                logger.exception("claiming partitions failed, and is tried again")
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._wake.wait()
            self._wake.clear()

    async def _claim_all(self) -> None:
        await asyncio.gather(
            *(self._claim_type(name) for name in self.hosted),
            *(self._claim(keys, make, wanted=True) for keys, make in self._extra.values()),
        )

    async def _claim_type(self, name: str) -> None:
        entry = self._services.directory.types.get(name)
        if entry is None or not entry.partitions:
            return
        share = self._share(name, entry.partitions)
        tags = [self._services.directory.partition(name, number) for number in range(entry.partitions)]
        owned = sum(1 for keys in tags if keys.tag in self._services.partitions)
        start = crc32(self._services.worker.encode()) % entry.partitions
        attempts: list[Awaitable[None]] = []
        for keys in tags[start:] + tags[:start]:
            if keys.tag not in self._services.partitions:
                wanted = keys.tag not in self._next_try and owned < share
                owned += wanted
                attempts.append(self._claim(keys, self._make, wanted=wanted))
        await asyncio.gather(*attempts)

    async def _claim(self, keys: LeasedKeys, make: Make, *, wanted: bool) -> None:
        """Try to take one, when it can be free: at first, and when the present lease ends."""
        loop, tag = asyncio.get_running_loop(), keys.tag
        due = self._next_try.get(tag)
        if tag in self._services.partitions or tag in self._claiming or self._services.stopping:
            return
        if due is None and not wanted:
            self._next_try[tag] = loop.time() + _PATIENCE  # its desired owner comes first
            return
        if due is not None and due > loop.time() + _TICK:
            return
        self._claiming.add(tag)
        try:
            if due is not None and due > loop.time():
                await asyncio.sleep(due - loop.time())
            nonce = uuid4().hex[:12]
            answer = await self._services.link.submit(
                lambda scripts: scripts.acquire(
                    keys, worker=self._services.worker, nonce=nonce, ttl_ms=self._services.settings.lease_ms
                )
            )
            if isinstance(answer, Taken):
                self._next_try[tag] = loop.time() + answer.remaining_ms / 1000 + _SOON
            else:
                await self._own(keys, answer, make)
                await self._give_back_late(tag)
        finally:
            self._claiming.discard(tag)

    async def _give_back_late(self, tag: str) -> None:
        """The runtime was stopped since this was asked for, and has given up all the rest."""
        owned = self._services.partitions.get(tag)
        if self._services.stopping and owned is not None:
            await self._let_go([owned])

    async def _own(self, keys: LeasedKeys, grant: Grant, make: Make) -> None:
        self._next_try.pop(keys.tag, None)
        self._leases.add(keys, grant.token)
        partition = make(grant.token, keys)
        partition.careful = bool(grant.previous) and not grant.previous.startswith("released:")
        begun = await self._services.link.submit(lambda scripts: scripts.attempts(keys)) if grant.previous else {}
        if partition.careful:
            partition.attempts = begun
        if isinstance(partition, Partition):
            self._services.marks.look(keys)
            partition.on_start_over = lambda: self._services.marks.look(keys)
            await partition.ends.take_over()
        self._services.partitions[keys.tag] = partition
        if isinstance(partition, Partition):
            partition.held.update(grant.held)
            self.held_elsewhere.watch(partition)
            partition.read_after_others(begun)
        else:
            partition.read()

    def _make(self, token: str, keys: LeasedKeys) -> Partition:
        services = self._services
        leave, credit = services.passivation.leave, services.settings.read_credit
        return Partition(keys, token, services.link, self._accept, leave, credit=credit)

    def _share(self, name: str, partitions: int) -> int:
        hosts = set(self._membership.hosts(name)) | {self._services.worker}
        return math.ceil(partitions / len(hosts))

    # -- giving up

    def lost(self, tag: str, token: str) -> None:
        """A lease is another's now."""
        partition = self._services.partitions.get(tag)
        if partition is not None and partition.token == token:
            if not self._lost_tags:
                asyncio.get_running_loop().call_later(_TICK, self._report_lost)
            self._lost_tags.append(tag)
            self._forget(partition)
            partition.lose()

    def _report_lost(self) -> None:
        tags, self._lost_tags = self._lost_tags, []
        logger.warning(
            "worker %s has lost %d leases (%s): the server did not hear of it for its lease of %g s, or went back to "
            "older data. Others have the agents, and run again what ran here. If this comes without a fault, give "
            "workers more CPU, look for handlers that block and for a slow server, or set a longer `lease`",
            self._services.worker,
            len(tags),
            ", ".join(tags[:3]) + ("…" if len(tags) > 3 else ""),
            self._services.settings.lease,
        )

    def _forget(self, partition: Owned) -> None:
        self._services.partitions.pop(partition.keys.tag, None)
        self._leases.remove(partition.keys)

    def _give_up_surplus(self) -> None:
        """Give up, one at a time for each type, what is more than our share; others wait for it."""
        now = asyncio.get_running_loop().time()
        for name in self.hosted:
            entry = self._services.directory.types.get(name)
            owned = self._owned_of(name) if entry is not None else []
            moving = now < self._next_move.get(name, 0.0) or any(each.keys.tag in self._moves for each in owned)
            if entry is None or moving or len(owned) <= self._share(name, entry.partitions):
                continue
            idle_first = sorted(owned, key=lambda partition: (partition.busy, random.random()))
            movable = next((partition for partition in idle_first if _can_move(partition)), None)
            if movable is not None:
                self._next_move[name] = now + _TICK
                self._moves.add(movable.keys.tag)
                self._services.dispatcher.spawn(self._move(movable))

    def _owned_of(self, name: str) -> list[Partition]:
        head = f"{self._namespace}:{name}:"
        partitions = self._services.partitions.items()
        return [owned for tag, owned in partitions if tag.startswith(head) and isinstance(owned, Partition)]

    async def _move(self, partition: Partition) -> None:
        passivation = self._services.passivation
        try:
            partition.drain()
            await passivation.close_all([each for each in partition.agents.values() if _has_ended(each)])
            if not partition.owned or self._services.stopping:
                return
            self._next_try[partition.keys.tag] = asyncio.get_running_loop().time() + _PATIENCE
            released = self._release_held(partition, _WHILE_ALIVE_MS, passivation.leave)
            for activation in agents_not_held(partition):
                passivation.leave(activation)
            await released
        finally:
            self._moves.discard(partition.keys.tag)

    def _release(self, partition: Owned, turns: Sequence[tuple[str, str]] = (), hold_ms: int = 0) -> Awaitable[None]:
        self._forget(partition)
        # Asked before anything else can be: what turns commit from now on they commit under their holds.
        released = self._services.link.submit(
            lambda scripts: scripts.release(partition.keys, token=partition.token, hold_ms=hold_ms, turns=turns)
        )
        return self._tell_hosts_when(released, partition.keys.tag)

    async def _tell_hosts_when(self, released: Awaitable[bool], tag: str) -> None:
        await released
        self._tell_hosts(tag)

    def _tell_hosts(self, tag: str) -> None:
        head = NamespaceKeys(self._namespace).bell_head
        for worker in self._heirs(tag):
            if worker != self._services.worker:
                bell = f"{head}{worker}}}:bell"
                why = "stop" if self._services.stopping else "share"
                fields = "k", "free", "p", tag, "w", why, "o", self._services.worker
                self._services.link.tell("XADD", bell, "MAXLEN", "~", "10000", "*", *fields)
                self._services.link.tell("PEXPIRE", bell, "3600000")  # its worker may have died

    def _heirs(self, tag: str) -> list[str]:
        """The workers that may take a partition: those of its type, or all for what is leased as one piece."""
        if tag in self._extra:
            return [member.name for member in self._membership.members if member.types and not member.stopping]
        return self._membership.hosts(tag.rpartition(":")[0].rpartition(":")[2])


def _has_ended(activation: Activation) -> bool:
    """True when the agent is idle and its last commit answered: one that still waits to leave needs a hold."""
    return activation.idle and not stored_of(activation).under_way


def _can_move(partition: Partition) -> bool:
    """True unless an agent of it is in memory that would lose what it remembers."""
    return all(a.agent is None or stored_of(a).may_leave for a in partition.agents.values())
