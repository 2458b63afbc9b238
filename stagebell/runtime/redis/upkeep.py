"""What a process looks after once or twice a second: that no call waits for something which will not come."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from collections.abc import Awaitable, Callable

from stagebell.errors import OutcomeUnknown, ServerError, ServerUnavailable, Undeliverable
from stagebell.messages.codec import unpack
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.effects import read_mark
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.membership import Membership
from stagebell.runtime.redis.replies import OpenCall, Replies
from stagebell.runtime.redis.settings import RedisSettings
from stagebell.runtime.redis.wire import Wire

logger = logging.getLogger("stagebell")

_PERIOD = 0.5
_OLD = 2.0
_DEFERRED = 5.0

Chore = Callable[[], Awaitable[None]]


class Upkeep:
    """Runs its chores until closed; a chore that fails is tried again the next time."""

    def __init__(self, period: float = _PERIOD) -> None:
        self.chores: list[Chore] = []
        self._period = period
        self._closed = False
        self._task: Task[None] | None = None

    def start(self) -> None:
        """Start."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        self._closed = True  # a chore may swallow the cancel, as what waits for a future that is cancelled just then
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._closed:
            await asyncio.sleep(self._period)
            for chore in self.chores:
                try:
                    await chore()
                except ServerError as error:
                    logger.debug("%s is put off: %s", chore, error)
                except Exception:
                    logger.exception("%s failed", chore)


class CallsWatch:
    """Ends calls from outside of turns that nobody will answer, and withdraws what nobody will handle."""

    def __init__(
        self,
        link: Link,
        wire: Wire,
        directory: Directory,
        membership: Membership,
        replies: Replies,
        settings: RedisSettings,
    ) -> None:
        self._link = link
        self._wire = wire
        self._directory = directory
        self._membership = membership
        self._replies = replies
        self._settings = settings
        self._gone: set[str] = set()
        self._looked: dict[str, float] = {}  # calls whose reply comes later

    async def look(self) -> None:
        """One round."""
        now = asyncio.get_running_loop().time()
        if self._link.down_since is not None and now - self._link.down_since > self._settings.server_patience:
            self._link.give_up()
            error = ServerUnavailable(f"the server has been away for {now - self._link.down_since:.0f} s")
            self._replies.fail_all(error)
            return
        await self._membership.refresh()
        await self._directory.refresh_if_changed()
        for field, call in list(self._replies.open.items()):
            await self.give_up_if_undeliverable(field, call, self._replies.entry_ids.get(field, ""))
            if now - call.since > _OLD and not call.answer.done():
                await self._check_still_there(field, call)

    async def give_up_if_undeliverable(self, field: str, call: OpenCall, entry_id: str) -> None:
        """Withdraw a call when nobody has hosted the agent's type for `undeliverable_after`."""
        missing = self._membership.missing_for(call.recipient.type)
        keys = call.keys
        if missing < self._settings.undeliverable_after or keys is None or not entry_id or call.answer.done():
            return
        reason = f"no live worker has hosted agent type {call.recipient.type!r} for {missing:.0f} s"
        failure = self._wire.failure(Undeliverable(call.recipient, reason), id=field, sender=str(call.recipient))
        withdrawn = await self._link.submit(
            lambda scripts: scripts.withdraw(
                keys, entry_id=entry_id, turn_id=call.turn_id, reply_to=call.reply, failure=failure
            )
        )
        if withdrawn and not call.answer.done():
            call.answer.set_result(unpack(failure))

    async def _check_still_there(self, field: str, call: OpenCall) -> None:
        """A request that is gone was answered with the same step, or its reply comes later; else the reply is lost."""
        entry_id = self._replies.entry_ids.get(field)
        if not entry_id or call.keys is None or self._has_looked(field):
            return
        if await self._link.ask("XRANGE", call.keys.inbox, entry_id, entry_id):
            self._gone.discard(field)
            return
        if await self._is_deferred(call):
            self._gone.discard(field)
            self._looked[field] = asyncio.get_running_loop().time()
            return
        if field not in self._gone:
            self._gone.add(field)
            return
        self._gone.discard(field)
        # Perhaps the reply is there, and the connection that listens for it is broken without knowing it.
        self._replies.hear(await self._link.ask("XRANGE", self._replies.stream.key, "-", "+"))
        if not call.answer.done():
            text = f"message {field} to {call.recipient} was handled, but its reply is lost"
            call.answer.set_exception(
                OutcomeUnknown(
                    f"{text}: perhaps the message id was used for an earlier call, or the server lost writes"
                )
            )

    async def _is_deferred(self, call: OpenCall) -> bool:
        keys = call.keys
        if keys is None:
            return False
        stored = await self._link.submit(lambda scripts: scripts.mark(keys, call.turn_id), mortal=True)
        mark = read_mark(stored) if stored is not None else None
        return mark is not None and mark.reply_to == call.reply

    def _has_looked(self, field: str) -> bool:
        """A reply that comes later may take days: do not look twice a second whether it still will."""
        looked = self._looked.get(field)
        if looked is None:
            return False
        if asyncio.get_running_loop().time() - looked < _DEFERRED:
            return True
        for known in [known for known in self._looked if known == field or known not in self._replies.open]:
            del self._looked[known]
        return False
