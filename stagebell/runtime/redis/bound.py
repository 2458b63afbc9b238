"""Process-bound agent types: held by one process of the namespace, the others stand by.

Inside their process their agents run in memory. Agents elsewhere, and turns that have a journal, reach them through the
inbox of the process, which is leased like a partition; when the process ends, the type and its subscriptions go, what
waits is set aside (by itself when it stops in order), and whoever stands by takes over.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from uuid import uuid4

from autogen_core import AgentId

from stagebell.errors import MessageError, Undeliverable
from stagebell.messages.codec import unpack
from stagebell.runtime.redis.keys import ProcessKeys
from stagebell.runtime.redis.membership import Membership
from stagebell.runtime.redis.requests import NO_REPLY, Turn
from stagebell.runtime.redis.results import InboxEntry, Taken
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.telling_back import failure_for
from stagebell.runtime.redis.wire import parse_reply

logger = logging.getLogger("stagebell")

_BATCH = 256


async def _nothing_to_do(name: str) -> None:
    """Takes the place of what the runtime does for a type that it holds now."""


class BoundTypes:
    """The process-bound types of this process: those it holds and those it stands by for."""

    def __init__(self, services: Services, namespace: str, membership: Membership) -> None:
        self._services = services
        self._namespace = namespace
        self._membership = membership
        self._standing_by: set[str] = set()
        self._ends = False  # it claims nothing any more
        self.on_held: Callable[[str], Awaitable[None]] = _nothing_to_do

    async def host(self, name: str) -> None:
        """Hold a type, or stand by for it."""
        self._standing_by.add(name)
        await self._claim(name)

    async def look(self) -> None:
        """Take over what lost its process, and clean up after processes that ended."""
        if self._ends:
            return
        for name in self._standing_by | self._services.bound_here:
            await self._claim(name)
        for worker in self._membership.silent:
            if worker != self._services.worker:
                await self._clean_up(worker)

    def lost(self) -> None:
        """Others took this process for dead and cleaned up after it: claim the types again."""
        self._standing_by |= self._services.bound_here
        self._services.bound_here = frozenset()

    async def withdraw(self) -> bool:
        """This process ends in order: its types and subscriptions go, and what has not been handled is set aside.

        Returns:
            False when its inbox could not be had: others hold it, since they took this process for dead, or a lease of
            its own has still to end. Then others set it aside.
        """
        worker = self._services.worker
        keys = ProcessKeys(self._namespace, worker)
        self._ends = True
        held, self._services.bound_here = self._services.bound_here, frozenset[str]()
        if held:
            await self._services.directory.forget_worker(worker)
        # From now on nobody finds it, so nothing more comes.
        if await self._services.link.ask("XLEN", keys.inbox):
            if not (token := await self._take(keys)):
                return False
            await self._set_aside_all(keys, token, worker)
        await self._note_dead_letters(keys, worker)
        return True

    async def _claim(self, name: str) -> None:
        value = json.dumps({"w": self._services.worker})
        answer = await self._services.link.submit(
            lambda scripts: scripts.claim_type(
                field=f"t:{name}",
                worker=self._services.worker,
                value=value,
                timeout_ms=self._services.settings.lease_ms,
            )
        )
        if self._ends or (answer.held and name in self._services.bound_here):
            return
        self._services.bound_here -= {name}
        self._standing_by.add(name)
        if answer.held:
            self._standing_by.discard(name)
            self._services.bound_here |= {name}
            await self._services.directory.refresh()
            await self.on_held(name)
        elif answer.other:
            self._standing_by.discard(name)
            logger.error(
                "agent type %r is process-bound here and spread over workers elsewhere: rename one of them", name
            )

    async def _clean_up(self, worker: str) -> None:
        keys = ProcessKeys(self._namespace, worker)
        services = self._services
        token = await self._take(keys)
        if not token:
            return
        bound = await services.directory.forget_worker(worker)
        if bound:
            logger.warning("worker %s is gone, and with it its process-bound agent types: %s", worker, ", ".join(bound))
        else:
            logger.info("worker %s is gone, others run its agents", worker)
        await self._set_aside_all(keys, token, worker)
        await self._note_dead_letters(keys, worker)
        await services.link.ask("ZREM", services.directory.keys.workers, worker)
        await services.link.ask("DEL", keys.own, keys.run, keys.ctl, keys.due, keys.timed)

    async def _take(self, keys: ProcessKeys) -> str:
        """Own the inbox of a process that has ended; the token, empty when somebody else owns it."""
        services, nonce = self._services, uuid4().hex[:12]
        grant = await services.link.submit(
            lambda scripts: scripts.acquire(
                keys, worker=services.worker, nonce=nonce, ttl_ms=services.settings.lease_ms
            )
        )
        return "" if isinstance(grant, Taken) else grant.token

    async def _note_dead_letters(self, keys: ProcessKeys, worker: str) -> None:
        """The name of the process is about to be forgotten: operators must still find what it leaves."""
        if await self._services.link.ask("XLEN", keys.dlq):
            await self._services.link.ask("HSET", self._services.directory.keys.ended, worker, "")

    async def _set_aside_all(self, keys: ProcessKeys, token: str, worker: str) -> None:
        start = "-"
        while entries := await self._read(keys, start):
            for entry in entries:
                await self._set_aside(keys, token, worker, entry)
            start = f"({entries[-1].entry_id}"  # not from the first again: one may be there that cannot be set aside

    def _read(self, keys: ProcessKeys, start: str) -> Awaitable[list[InboxEntry]]:
        return self._services.link.submit(lambda scripts: scripts.read(keys.inbox, start, _BATCH))

    async def _set_aside(self, keys: ProcessKeys, token: str, worker: str, entry: InboxEntry) -> None:
        reason = f"the process {worker} that held the agent has ended"
        reply_to, failure = NO_REPLY, b""
        try:
            envelope = unpack(entry.envelope)
            reply_to = parse_reply(envelope.reply)
            agent, undeliverable = AgentId.from_str(entry.agent), Undeliverable(entry.agent, reason)
            failure = failure_for(self._services, reply_to, envelope, agent, undeliverable)
        except (MessageError, ValueError) as error:
            reason += f", and the message cannot be read: {error}"
        fence = Turn(keys, token, entry.agent, entry.entry_id, entry.turn_id)
        reply = await self._services.link.submit(
            lambda scripts: scripts.fail(fence, has_state=False, reply_to=reply_to, failure=failure, dead_letter=reason)
        )
        if reply.status not in ("OK", "DUP"):
            logger.error("%s of %s cannot be set aside: %s %s", entry.entry_id, keys.inbox, reply.status, reply.detail)
