"""The parts that every process has, whether it hosts agents or not: a link, a copy of the registry, and its replies."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from stagebell.errors import InvalidSetting
from stagebell.messages.registry import TypeRegistry
from stagebell.runtime.engine.clock import Clock, SystemClock
from stagebell.runtime.redis.callers import SignOfLife
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.ears import Ears
from stagebell.runtime.redis.embedded import EmbeddedServer
from stagebell.runtime.redis.keys import NamespaceKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.membership import Membership
from stagebell.runtime.redis.replies import Replies
from stagebell.runtime.redis.rights import CLIENT_COMMANDS
from stagebell.runtime.redis.settings import RedisSettings
from stagebell.runtime.redis.timers import TimerStore
from stagebell.runtime.redis.transport import Transport
from stagebell.runtime.redis.upkeep import CallsWatch, Upkeep
from stagebell.runtime.redis.wire import Wire


class Client:
    """One process in a namespace; `name` is new for each one, so its streams are its own.

    `commands` are those of the server that it needs.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        registry: TypeRegistry,
        settings: RedisSettings,
        max_call_depth: int,
        commands: tuple[str, ...] = CLIENT_COMMANDS,
        clock: Clock | None = None,
    ) -> None:
        self.name = f"p{uuid4().hex[:15]}"
        self.url = url
        self.link = Link(url, namespace, f"stagebell-{self.name}", commands)
        self.wire = Wire(registry, settings)
        self.directory = Directory(self.link, namespace, settings.partitions)
        self.replies = Replies(NamespaceKeys(namespace).client_replies(self.name))
        self.transport = Transport(
            self.link, self.wire, self.directory, self.replies, max_call_depth, settings, clock or SystemClock()
        )
        self.timers = TimerStore(self.link, self.directory, settings.undeliverable_after)
        self.membership = Membership(self.link, namespace, settings.lease_ms)
        self.ears = Ears(url, self.link, f"stagebell-{self.name}-ears")
        self.ears.add(self.replies.stream)
        self.calls_watch = CallsWatch(self.link, self.wire, self.directory, self.membership, self.replies, settings)
        self.upkeep = Upkeep()
        self.alive = SignOfLife(self.link, NamespaceKeys(namespace).client_alive(self.name))
        self.upkeep.chores += [self.calls_watch.look, self.alive.give]

    async def open(self) -> None:
        """Connect.

        Raises:
            ServerUnavailable: the server cannot be reached, or cannot write now.
            ServerRefused: it refused the credentials or the commands.
        """
        await self.link.open()
        await self.directory.refresh()
        await self.alive.give()

    async def listen(self) -> None:
        """Listen for replies, and look after open calls."""
        await self.ears.open()
        self.upkeep.start()

    async def hear_last_replies(self) -> None:
        """Take the replies that are in the server by now, before open calls are given up."""
        if self.replies.open:
            self.replies.hear(await self.link.ask("XRANGE", self.replies.stream.key, "-", "+"))

    async def close(self, error: BaseException) -> None:
        """Disconnect; open calls end in `error`."""
        self.replies.fail_all(error)
        self.alive.end()
        await self.upkeep.close()
        await self.ears.close()
        await self.link.close()


def as_folder(folder: object) -> Path | None:
    """The project folder of the embedded server as a path.

    Raises:
        InvalidSetting: it is none.
    """
    if folder is None or isinstance(folder, str | Path):
        return None if folder is None else Path(folder)
    raise InvalidSetting(f"folder must be a path or None, not {folder!r:.100}", "folder")


async def find_server(url: str | None, folder: Path | None) -> tuple[str, EmbeddedServer | None]:
    """The server's URL; without one, that of the embedded server of the project folder, which is then in use.

    Raises:
        ServerNotFound: there is no server program on this machine.
        ServerUnavailable: the embedded server does not start.
    """
    if url is not None:
        return url, None
    server = await EmbeddedServer.acquire(folder)
    return server.url, server
