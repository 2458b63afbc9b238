"""Set and cancel timers from a process, outside of turns."""

from __future__ import annotations

from collections.abc import Awaitable

from autogen_core import AgentId, TopicId

from stagebell.errors import ServerRefused, Undeliverable
from stagebell.runtime.engine.timers import TimerId
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.timed import Timed, place_of
from stagebell.runtime.redis.timer_scripts import TimerReply


class TimerStore:
    """The timers of a namespace; `patience` is how long somebody may take to make an agent type known, in seconds."""

    def __init__(self, link: Link, directory: Directory, patience: float) -> None:
        self._link = link
        self._directory = directory
        self._patience = patience

    async def place(self, to: AgentId | TopicId) -> LeasedKeys:
        """Where its timers are kept.

        Raises:
            Undeliverable: nobody has made the agent's type known.
        """
        if isinstance(to, AgentId):
            return await self._directory.wait_for_place(to, self._patience)
        place = place_of(to, self._directory)
        assert place is not None
        return place

    async def set(self, timed: Timed) -> int:
        """Set a timer; returns when it is due, in milliseconds.

        Raises:
            Undeliverable: nobody has made the agent's type known.
            ServerRefused: a key has a type that nobody of us wrote.
            ServerUnavailable, OutcomeUnknown: the server was away for too long.
        """
        while True:
            reply = await self._ask(timed, await self.place(timed.id.to))
            match reply.status:
                case "OK":
                    return int(reply.detail)
                case "STALE_REGISTRY":
                    await self._directory.refresh()
                case _:
                    raise ServerRefused(f"the server refused a timer: {reply.status} {reply.detail}")

    def _ask(self, timed: Timed, keys: LeasedKeys) -> Awaitable[TimerReply]:
        version = self._directory.checked_version(keys)
        return self._link.submit(
            lambda scripts: scripts.schedule(
                keys,
                timer=timed.id.key,
                nonce=timed.nonce,
                when=timed.when,
                message=timed.message,
                registry_version=version,
            ),
            mortal=True,
        )

    async def cancel(self, id: TimerId) -> bool:
        """Cancel a timer; False when there is none. Raises as `set` does, but for an agent's type."""
        keys = await self._known_place(id)
        if keys is None:
            return False
        return await self._link.submit(lambda scripts: scripts.unschedule(keys, timer=id.key), mortal=True)

    async def is_set(self, id: TimerId) -> bool:
        """Whether there is such a timer now."""
        keys = await self._known_place(id)
        return keys is not None and await self._link.submit(lambda scripts: scripts.is_set(keys, id.key), mortal=True)

    async def _known_place(self, id: TimerId) -> LeasedKeys | None:
        try:
            return await self.place(id.to)
        except Undeliverable:
            return None
