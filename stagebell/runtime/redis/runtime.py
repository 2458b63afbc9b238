"""`RedisRuntime`: agents spread over worker processes and machines, over one Redis or Valkey server.

Follow one message: publisher → codec → redis/transport → mailbox → dispatch → outcome → commit → replies → calls.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future, Task
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack

from autogen_core import (
    InterventionHandler,
)
from opentelemetry.trace import TracerProvider

from stagebell.errors import RuntimeNotRunning
from stagebell.runtime.engine.checked import named_settings
from stagebell.runtime.engine.clock import Clock
from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.client import as_folder, find_server
from stagebell.runtime.redis.control import register_requests
from stagebell.runtime.redis.embedded import EmbeddedServer
from stagebell.runtime.redis.hosting import Phase
from stagebell.runtime.redis.keys import check_name
from stagebell.runtime.redis.lease_thread import LeaseKeeper, LeaseThread
from stagebell.runtime.redis.node import Node
from stagebell.runtime.redis.scheduling import Scheduling
from stagebell.runtime.redis.settings import RedisOptions, RedisSettings

logger = logging.getLogger("stagebell")


class RedisRuntime(Scheduling):
    """An agent runtime across processes. Several of them with the same namespace share the agents of their types.

    Args:
        url: redis://, rediss:// or unix:// URL of the server; without one, the embedded server of the project folder.
        namespace: agents of different namespaces know nothing of each other.
        intervention_handlers: `on_send` and `on_publish` run before a message is stored, `on_response` where the
            callee lives; each sees what the one before it returned.
        tracer_provider: where spans go; without one, the application's global provider, if it has set one.
        folder: the project folder of the embedded server (default: `.stagebell` in the current directory).
        cancel_grace: seconds that a cancelled handler may go on before its task is cancelled.
        max_call_depth: how long a chain of calls may grow before it ends in `CallDepthExceeded`.
        warn_after: seconds after which a turn that waits, with no call open, is reported with its stack.
        clock: the time of day; without one, that of this machine.
        options: settings of the namespace and of this worker, see `RedisSettings`.

    Raises:
        InvalidSetting: there is no such setting, or it does not take this value.
    """

    _keeper: ClassVar[type[LeaseKeeper]] = LeaseThread

    @named_settings("RedisRuntime", RedisOptions.__annotations__)
    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "default",
        intervention_handlers: Sequence[InterventionHandler] | None = None,
        tracer_provider: TracerProvider | None = None,
        folder: Path | None = None,
        cancel_grace: float = 0.5,
        max_call_depth: int = 32,
        warn_after: float = 60.0,
        clock: Clock | None = None,
        **options: Unpack[RedisOptions],
    ) -> None:
        super().__init__(
            intervention_handlers=intervention_handlers,
            tracer_provider=tracer_provider,
            cancel_grace=cancel_grace,
            max_call_depth=max_call_depth,
            warn_after=warn_after,
            clock=clock,
        )
        if url is not None:
            Address.parse(url)  # a mistake in it shows here, not at the start
        self._url = url
        self._namespace = check_name(namespace)
        self._folder = as_folder(folder)
        self._settings = RedisSettings(**options)
        register_requests(self._registry)
        self._dispatcher.limit.most = self._settings.max_running_turns
        self._server: EmbeddedServer | None = None
        self._starting: Future[None] | None = None
        self._ending: Task[None] | None = None

    @property
    def state_limit(self) -> int:
        """How many bytes a stored state may have: `max_state_bytes`."""
        return self._settings.max_state_bytes

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- life

    async def start(self) -> None:
        """Connect, announce the agent types that were registered, and take a share of their agents.

        Raises:
            RuntimeError: it is running.
            ServerNotFound: no URL was given and there is no server program on this machine.
            ServerUnavailable: the server cannot be reached, or cannot write now.
            ServerRefused: it refused the credentials, or a command that is needed.
        """
        if self._phase is Phase.CRASHED:
            raise RuntimeNotRunning(f"start was refused: the runtime {self._phase.value}")
        if self._phase in (Phase.STARTING, Phase.RUNNING):
            raise RuntimeError("the runtime is already started")
        self._phase = Phase.STARTING
        starting = self._starting = asyncio.get_running_loop().create_future()
        try:
            await self._end_of_stop()
            await self._start()
        except BaseException:
            self._phase = Phase.STOPPED
            raise
        finally:
            self._starting = None
            starting.set_result(None)

    async def _start(self) -> None:
        self._events.refresh()
        url, self._server = await find_server(self._url, self._folder)
        node = Node(
            url,
            self._namespace,
            self._settings,
            self._registry,
            self._catalog,
            self._dispatcher,
            self._max_call_depth,
            self._clock,
            self._keeper,
        )
        self._named(node.client.name)
        node.services.publish_here = self._publish_turn_here
        node.services.tell_here = self._telling.tell
        node.services.on_publish_error = self._on_publish_error
        node.bound.on_held = self._subscribe_bound
        try:
            await node.open()
            self._node, self._phase = node, Phase.RUNNING
            self._dispatcher.start()
            await self._announce_all(node)
            node.on_forgotten = self._announce_again
            await node.work()
        except BaseException:
            self._node = None
            await node.close(abrupt=True)
            self._release_server()
            raise

    def _named(self, worker: str) -> None:
        """From now on there may be something in the server in this name."""

    async def stop(self) -> None:
        """Stop: messages that were not started stay in their inboxes for others, open turns get `stop_grace` to end.

        Agents stay in memory until `close`, but are loaded anew when the runtime starts again. From inside a turn of
        this runtime it returns at once, and the rest of the stop comes after the turn, whose commit is still made.

        Raises:
            RuntimeError: it is not running.
        """
        node = self._running("stop")
        if self._phase is not Phase.RUNNING:
            raise RuntimeNotRunning(f"stop was refused: the runtime {self._phase.value}")
        self._phase = Phase.STOPPED
        node.services.stopping = True
        node.drain()
        self._dispatcher.stop()
        ending = self._end_with(self._end(node))
        if self._caller() is None:
            await asyncio.shield(ending)

    async def _end(self, node: Node) -> None:
        await self._end_of_start()
        if self._node is not node:
            return  # the start failed, and has closed it
        node.hand_over()
        await self._dispatcher.settle(self._settings.stop_grace)
        self._node = None
        await node.close()
        self._release_server()

    def _end_with(self, work: Coroutine[Any, Any, None]) -> Task[None]:
        """Go on in a task of no turn: it must be able to wait for the turn that asked for it."""
        self._ending = asyncio.get_running_loop().create_task(work, context=Context())
        return self._ending

    async def _end_of_stop(self) -> None:
        """Wait for a stop that is under way; its error is for whoever asked for it."""
        if self._ending is not None and not self._ending.done():
            await asyncio.wait([self._ending])

    async def _end_of_start(self) -> None:
        if self._starting is not None:
            await asyncio.shield(self._starting)

    async def stop_when_idle(self, timeout: float | None = None) -> None:
        """Stop as soon as no inbox of the namespace holds a message that can run, and nothing runs here.

        Args:
            timeout: seconds to wait for that.

        Raises:
            RuntimeError: it is not running.
            TimeoutError: there was still work after `timeout`; the runtime goes on.
        """
        node = self._running("stop_when_idle")
        self._refuse_inside_turn("stop_when_idle")
        async with asyncio.timeout(timeout):
            await node.wait_idle()
        await self.stop()

    async def close(self) -> None:
        """Stop if running, then close every agent and forget it; a start or stop that is under way ends first.

        From inside a turn of this runtime it returns at once, as `stop` does, and agents are closed after the turn.
        """
        if self._phase is Phase.CRASHED:
            return  # no code of its agents runs any more
        if self._caller() is not None:
            with suppress(RuntimeNotRunning):
                await self.stop()
            self._end_with(self._close_after(self._ending))
            return
        await self._end_of_start()
        if self._phase is Phase.RUNNING:
            await self.stop()
        await self._end_of_stop()
        self._phase = Phase.STOPPED
        await self._close_agents()

    async def _close_after(self, ending: Task[None] | None) -> None:
        if ending is not None and not ending.done():
            await asyncio.wait([ending])
        await self._close_agents()

    async def _close_agents(self) -> None:
        try:
            await self._catalog.close()
        finally:
            await self._dispatcher.retiring.finish()

    # -- faults, for tests: see `stagebell.testing`

    async def crash(self) -> None:
        """End as a killed process does; see `stagebell.testing.crash`.

        Raises:
            RuntimeNotRunning: it is not running.
        """
        node = self._running("crash")
        self._node, self._phase = None, Phase.CRASHED
        # In a task of its own: the turn that asks for it is interrupted as the others are.
        await asyncio.shield(self._end_with(node.crash(f"the runtime {Phase.CRASHED.value}")))
        self._release_server()

    def freeze(self) -> None:
        """Stand still as a stopped process does; see `stagebell.testing.freeze`.

        Raises:
            RuntimeNotRunning: it is not running.
        """
        self._running("freeze").freeze()

    def thaw(self) -> None:
        """Go on after `freeze`.

        Raises:
            RuntimeNotRunning: it is not running.
        """
        self._running("thaw").thaw()

    def _release_server(self) -> None:
        if self._server is not None:
            self._server.release()
            self._server = None
