"""`Publisher`: events, messages and calls from a process that hosts no agents."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from autogen_core import AgentId, TopicId

from stagebell.errors import RuntimeNotRunning
from stagebell.messages.registry import TypeRegistry
from stagebell.runtime.engine.addressed import require_agent, require_topic
from stagebell.runtime.engine.checked import named_settings
from stagebell.runtime.engine.clock import SystemClock
from stagebell.runtime.engine.deadlines import current_deadline, deadline
from stagebell.runtime.engine.timers import NOW, Plan, Timer, TimerId, as_time
from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.client import Client, as_folder, find_server
from stagebell.runtime.redis.embedded import EmbeddedServer
from stagebell.runtime.redis.keys import check_name
from stagebell.runtime.redis.settings import PublisherOptions, RedisSettings
from stagebell.runtime.redis.stored_states import saved_states
from stagebell.runtime.redis.timed import Timed


class Publisher:
    """Sends typed messages to the agents of a namespace. Use it as an async context manager.

    Args:
        url: redis://, rediss:// or unix:// URL of the server; without one, the embedded server of the project folder.
        namespace: the namespace of the agents.
        folder: the project folder of the embedded server (default: `.stagebell` in the current directory).
        options: `max_message_bytes`, `undeliverable_after`, `server_patience`, `inbox_limit`, `when_full`; see
            `RedisSettings`.

    Raises:
        InvalidSetting: there is no such setting, or it does not take this value.
    """

    @named_settings("Publisher", PublisherOptions.__annotations__)
    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "default",
        folder: Path | None = None,
        **options: Unpack[PublisherOptions],
    ) -> None:
        if url is not None:
            Address.parse(url)
        self._url = url
        self._namespace = check_name(namespace)
        self._folder = as_folder(folder)
        self._settings = RedisSettings(**options)
        self._registry = TypeRegistry()
        self._seen: set[type[Any]] = set()
        self._server: EmbeddedServer | None = None
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect.

        Raises:
            ServerNotFound: no URL was given and there is no server program on this machine.
            ServerUnavailable: the server cannot be reached, or cannot write now.
            ServerRefused: it refused the credentials, or a command that is needed.
        """
        url, self._server = await find_server(self._url, self._folder)
        client = Client(url, self._namespace, self._registry, self._settings, max_call_depth=32)
        try:
            await client.open()
            await client.listen()
        except BaseException:
            await self._let_go(client)
            raise
        self._client = client

    async def close(self) -> None:
        """Disconnect; open calls end in `RuntimeNotRunning`."""
        client, self._client = self._client, None
        if client is not None:
            await self._let_go(client)

    async def _let_go(self, client: Client) -> None:
        await client.close(RuntimeNotRunning("the publisher was closed before the reply came"))
        if self._server is not None:
            self._server.release()

    def register(self, *types: Any) -> None:
        """Make message types known, so that replies of these types can be read.

        Types of messages that are sent become known by themselves.

        Raises:
            TypeConflict: another class is known under the same wire name.
        """
        for each in types:
            self._registry.add_type(each)

    async def publish(self, message: Any, topic_id: TopicId, *, message_id: str | None = None) -> None:
        """Publish to all agents that subscribe to the topic. It is stored for each of them when this returns.

        Those who subscribe later do not get it; where nobody does, the log says so once for each type of topic.

        Args:
            message: of a class that is a pydantic model, a dataclass or a protobuf message.
            topic_id: the topic.
            message_id: give the same id to repeat a publish whose outcome is unknown: within 10 minutes it is one.

        Raises:
            MessageTooLarge: it is larger than `max_message_bytes`.
            Busy: an inbox is full, and with `when_full="wait"` there was no room for `server_patience`.
            ServerUnavailable: the server was away for too long, nothing was sent.
            OutcomeUnknown: the server was away for too long, and it may have got the message.
        """
        require_topic(topic_id)
        client = self._running()
        await client.transport.publish(
            self._encode(client, message), topic_id, message_id=message_id, deadline=current_deadline()
        )

    async def send(self, message: Any, recipient: AgentId, *, message_id: str | None = None) -> None:
        """Send to one agent and wait for no reply. It is stored when this returns. Raises as `publish` does."""
        require_agent(recipient)
        client = self._running()
        await client.transport.send(
            self._encode(client, message), recipient, message_id=message_id, deadline=current_deadline()
        )

    async def call(
        self,
        message: Any,
        recipient: AgentId,
        *,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Call an agent and wait for its reply.

        Args:
            message: as for `publish`.
            recipient: the agent.
            timeout: seconds to wait; without one, until the reply or a named error comes. It travels with the call:
                its handler, and what that calls, is cancelled when it is over.
            message_id: as for `publish`.

        Raises:
            DeadlineExceeded: the reply did not come within `timeout`, or before the end of a `stagebell.deadline`;
                it is a TimeoutError.
            Undeliverable: nobody hosts the agent's type.
            CantHandle: the agent has no handler for the message.
            UnregisteredType: the type of the reply is not known here: `register` it.
            Exception: whatever the handler raised, or as for `publish`.
        """
        require_agent(recipient)
        client = self._running()
        with nullcontext() if timeout is None else deadline(timeout):
            return await client.transport.call(
                self._encode(client, message), recipient, message_id=message_id, deadline=current_deadline()
            )

    async def schedule(
        self,
        message: Any,
        to: AgentId | TopicId,
        *,
        delay: float | None = None,
        every: float | None = None,
        at: datetime | None = None,
        name: str | None = None,
    ) -> Timer:
        """Let a message come later; as `RedisRuntime.schedule`, from outside of turns. It is kept when this returns."""
        plan, id = Plan.of(delay, every, at), TimerId.make(to, name)
        client = self._running()
        if plan == NOW and name is None and isinstance(to, AgentId):
            await client.transport.tell(self._encode(client, message), to, None, message_id=id.key)
            return Timer(str(id), as_time(SystemClock().now_ms()), self)
        timed = Timed(id, plan, self._encode(client, message), None, client.wire)
        return Timer(str(id), as_time(await client.timers.set(timed)), self)

    async def cancel_timer(self, id: str) -> bool:
        """Let a timer come no more.

        Args:
            id: that of the timer, whoever made it.

        Returns:
            True when it was still to come.

        Raises:
            ValueError: this is no id of a timer.
        """
        return await self._running().timers.cancel(TimerId.parse(id))

    async def saved_states(self, agent_type: str, key: str | None = None) -> Mapping[str, Mapping[str, Any]]:
        """The states of all agents of one type (or of one, with `key`), by their keys, as they were stored last.

        No worker is needed.

        Raises:
            MalformedState: one cannot be read.
            ServerRefused: with restricted rights: the user may not use `SMEMBERS`.
        """
        client = self._running()
        return await saved_states(client.link, client.directory, agent_type, key)

    def _encode(self, client: Client, message: Any) -> Any:
        cls: type[Any] = message.__class__
        if cls not in self._seen:
            self._registry.add_type(cls)
            self._seen.add(cls)
        return client.wire.encode(message)

    def _running(self) -> Client:
        if self._client is None:
            raise RuntimeNotRunning("the publisher is not open: use `async with Publisher(…) as publisher`")
        return self._client
