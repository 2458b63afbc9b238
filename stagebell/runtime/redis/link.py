"""The connection of a process to its server, opened again when it breaks.

What holds at all times
    - A script that must take effect goes through `submit`. It is kept until the server has answered, and sent again, in
      the order in which it was submitted, when the connection broke before that. Every script can be sent twice: its
      answer tells whether it had its effect before.
    - Whoever keeps what the server told it hears of each new connection (`on_restored`) before anything else is sent
      over it, since the server may have lost writes.
    - A server that cannot write now (loading, read-only, short of replicas) is a broken connection, not an answer. A
      connection is used when a script that writes has succeeded over it; until then the server counts as away.
"""

from __future__ import annotations

import asyncio
import logging
import random
from asyncio import Future, Task
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from stagebell.errors import OutcomeUnknown, RuntimeNotRunning, ServerRefused, ServerUnavailable
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.rights import check_rights
from stagebell.runtime.redis.scripts import Scripts

logger = logging.getLogger("stagebell")

T = TypeVar("T")
Ask = Callable[[Scripts], "Future[T]"]

_NOT_NOW = frozenset({"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "MISCONF", "TRYAGAIN", "NOREPLICAS"})
_OPEN_DEADLINE = 3600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_STEADY = 5.0  # seconds after which a connection that is refused is not the former trouble again


class _Request(Generic[T]):
    """A script on its way; `sent` tells whether the server may have run it. The connection answers it; see `Sink`."""

    __slots__ = ("answer", "ask", "key", "link", "mortal", "sent")

    def __init__(
        self, link: Link, key: int, ask: Ask[T], answer: Callable[[T | BaseException], None], mortal: bool
    ) -> None:
        self.link = link
        self.key = key
        self.ask = ask
        self.answer = answer
        self.mortal = mortal
        self.sent = False

    def done(self) -> bool:
        """The connection asks this before it answers."""
        return False

    def set_result(self, result: T) -> None:
        """The server's answer."""
        self.link.settle(self.key, self, result)

    def set_exception(self, error: BaseException) -> None:
        """There will be no answer over this connection."""
        self.link.settle(self.key, self, error)


class Link:
    """One process's way to the server, for one namespace; `commands` are those that it must be allowed to use."""

    def __init__(self, url: str, namespace: str, name: str, commands: tuple[str, ...] = ()) -> None:
        self._url = url
        self._namespace = namespace
        self._name = name
        self._commands = commands
        self._pause = 0.0
        self._used_at = 0.0
        self._connection: Connection | None = None
        self._scripts: Scripts | None = None
        self._requests: dict[int, _Request[Any]] = {}
        self._next = 0
        self._reopening: Task[None] | None = None
        self._closed = False
        self._held = False
        self._broken_off = ""
        self._loop = asyncio.get_running_loop()
        self.down_since: float | None = None
        self.on_restored: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Connect.

        Raises:
            ServerUnavailable: the server cannot be reached, or cannot write now.
            ServerRefused: it refused the credentials or a command.
        """
        self._use(*await self._connect(Connection.open(self._url, name=self._name)))

    async def close(self) -> None:
        """Disconnect; what is under way ends in `ServerUnavailable`."""
        self._closed = True
        if self._reopening is not None:
            self._reopening.cancel()
        if self._connection is not None:
            self._connection.close()
        requests, self._requests = list(self._requests.values()), {}
        for request in requests:
            request.answer(ServerUnavailable("the runtime was closed before the server answered"))

    def hold(self) -> None:
        """Neither read nor write until `go_on`."""
        self._held = True
        if self._connection is not None:
            self._connection.hold()

    def go_on(self) -> None:
        """End a `hold`."""
        self._held = False
        if self._connection is not None:
            self._connection.go_on()

    def break_off(self, why: str) -> None:
        """Send nothing from now on; what is under way, and what comes, ends in `RuntimeNotRunning`."""
        self._closed, self._broken_off = True, why
        if self._reopening is not None:
            self._reopening.cancel()
        requests, self._requests = list(self._requests.values()), {}
        connection, self._connection, self._scripts = self._connection, None, None
        if connection is not None:
            connection.close()
        for request in requests:
            request.answer(RuntimeNotRunning(why))

    def away_for(self) -> float:
        """For how many seconds there has been no connection; may be asked from another thread."""
        down_since = self.down_since
        return 0.0 if down_since is None else self._loop.time() - down_since

    @property
    def connected(self) -> bool:
        """True while there is a connection."""
        return self._scripts is not None

    def submit(self, ask: Ask[T], *, mortal: bool = False) -> Future[T]:
        """Run a script until the server has answered; see the top of this file.

        Args:
            ask: makes the request; called again for each new connection.
            mortal: given up by `give_up`, when the server has been away for too long.

        Returns:
            A future of the answer.
        """
        future: Future[T] = asyncio.get_running_loop().create_future()

        def answer(outcome: T | BaseException) -> None:
            if future.done():
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
                future.exception()  # whoever awaits it gets it; nobody needs a warning that nobody does
            else:
                future.set_result(outcome)

        self.run(ask, answer, mortal=mortal)
        return future

    def run(self, ask: Ask[T], answer: Callable[[T | BaseException], None], *, mortal: bool = False) -> None:
        """As `submit`, with a function that is called with the answer, or the error, as soon as it is there."""
        if self._broken_off:
            answer(RuntimeNotRunning(self._broken_off))
            return
        self._next = key = self._next + 1
        request = self._requests[key] = _Request(self, key, ask, answer, mortal)
        if self._scripts is not None:
            self._send(request, self._scripts)

    def give_up(self) -> None:
        """The server has been away for too long: end what is mortal."""
        for key, request in list(self._requests.items()):
            if request.mortal:
                self._requests.pop(key)
                text = "the server has been away for too long"
                unknown = OutcomeUnknown(f"{text}, and a message that was sent before may or may not have arrived")
                request.answer(unknown if request.sent else ServerUnavailable(f"{text}, nothing was sent"))

    async def ask(self, *command: str | bytes | int) -> Any:
        """One command that only reads.

        Raises:
            ServerUnavailable: there is no connection, or it broke.
            ServerRefused: the server answered with an error.
        """
        if self._connection is None:
            raise ServerUnavailable("there is no connection to the server at this moment")
        return await self._connection.execute(*command)

    def tell(self, *command: str | bytes | int) -> None:
        """One command whose effect is not needed; its answer, and its failure, are not waited for."""
        if self._connection is not None:
            self._connection.execute(*command).add_done_callback(_ignore)

    async def drain(self) -> None:
        """Wait while much waits to be sent."""
        if self._connection is not None and not self._connection.closed:
            await self._connection.drain()

    def _send(self, request: _Request[Any], scripts: Scripts) -> None:
        request.sent = True
        scripts.into(request, request.ask)

    def settle(self, key: int, request: _Request[Any], outcome: Any) -> None:
        """The connection has an answer, or breaks."""
        if isinstance(outcome, ServerUnavailable) and not self._closed:
            return  # stays in line for the next connection
        if isinstance(outcome, ServerRefused) and outcome.code in _NOT_NOW and not self._closed:
            self._distrust(str(outcome))
            return
        if self._requests.pop(key, None) is None:
            return  # given up
        try:
            request.answer(outcome)
        except Exception:  # a mistake of ours in one answer must not break the connection of all
            logger.exception("an answer of the server could not be dealt with")

    # -- the connection breaks

    async def _connect(self, opening: Any) -> tuple[Connection, Scripts]:
        connection: Connection = await opening
        scripts = Scripts(connection, self._namespace)
        try:
            await scripts.load()
            if self._commands:
                await check_rights(scripts, self._commands)
        except BaseException as error:
            connection.close()
            if isinstance(error, ServerRefused) and error.code in _NOT_NOW:
                raise ServerUnavailable(f"the server at {connection.address} takes no writes now: {error}") from None
            raise
        if connection.closed:  # since its last answer; `_use` would wait for an end that has been
            raise ServerUnavailable(f"the server at {connection.address} closed the connection at once")
        return connection, scripts

    def _use(self, connection: Connection, scripts: Scripts) -> None:
        self._connection, self._scripts = connection, scripts
        self.down_since = None
        self._used_at = asyncio.get_running_loop().time()
        connection.on_lost = self._lost
        if self._held:
            connection.hold()

    def _distrust(self, reason: str) -> None:
        if self._connection is not None:
            again = asyncio.get_running_loop().time() - self._used_at < _STEADY
            self._pause = _longer(self._pause) if again else _FIRST_PAUSE
            self._connection.close()
            self._lost(ServerUnavailable(reason), self._pause)

    def _lost(self, error: ServerUnavailable, pause: float = 0.0) -> None:
        if self._scripts is None or self._closed:
            return
        self._connection = self._scripts = None
        loop = asyncio.get_running_loop()
        self.down_since = loop.time()
        logger.warning("the connection to the server is lost, trying again: %s", error)
        self._reopening = loop.create_task(self._reopen(pause))

    async def _reopen(self, pause: float) -> None:
        connection, scripts = await self._open_again(pause)
        self._use(connection, scripts)
        logger.warning("connected to the server again")
        for restored in self.on_restored:
            restored()
        for request in list(self._requests.values()):
            self._send(request, scripts)

    async def _open_again(self, pause: float) -> tuple[Connection, Scripts]:
        said = ""
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            try:
                opening = Connection.open_with_retry(self._url, deadline=_OPEN_DEADLINE, name=self._name)
                return await self._connect(opening)
            except (ServerUnavailable, ServerRefused) as error:
                if str(error) != said:
                    said = str(error)
                    logger.error("cannot connect to the server, trying again: %s", error)
                pause = _longer(pause)


def _longer(pause: float) -> float:
    return min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)


def _ignore(answer: Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
