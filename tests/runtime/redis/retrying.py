"""A runtime whose retries the test lets come, on a clock of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from autogen_core import MessageContext, TopicId, TypeSubscription

from stagebell import RedisRuntime, Retry, agent_options
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.testing import ManualClock
from tests.support.agents import Ask, Doing, Note, OnAsk, OnNote
from tests.support.servers import Server
from tests.support.waiting import eventually

STEADY = Retry(first_delay=10, factor=2, jitter=0)


@agent_options(retry=STEADY)
class Tried(Doing):
    """Keeps what it has heard as its state."""

    def __init__(self, ask: OnAsk, note: OnNote) -> None:
        super().__init__(ask, note)
        self.heard: list[int] = []

    async def save_state(self) -> dict[str, Any]:
        return {"heard": self.heard}

    async def load_state(self, state: Any) -> None:
        self.heard = list(state["heard"])


class Bench:
    """A runtime on a clock that the test advances, with all agents of a type in one partition."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.url, self.namespace = server.url, namespace
        self.client: Any = server.client()
        self.clock = ManualClock()
        self.runtime = self.new_runtime()
        self.attempts: list[tuple[str, int]] = []

    def new_runtime(self, **options: Any) -> RedisRuntime:
        return RedisRuntime(self.url, namespace=self.namespace, partitions=1, clock=self.clock, **options)

    async def host(
        self, note: OnNote, ask: OnAsk | None = None, cls: type[Doing] = Tried, runtime: RedisRuntime | None = None
    ) -> None:
        """Agents of type "one" that hear of topics "t"."""

        async def noting(agent: Any, message: Note, ctx: MessageContext) -> None:
            self.attempts.append((agent.id.key, message.number))
            if isinstance(agent, Tried):
                agent.heard.append(message.number)
            await note(agent, message, ctx)

        async def nothing(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            return "nothing"

        runtime = runtime or self.runtime
        await cls.register(runtime, "one", lambda: cls(ask or nothing, noting))
        await runtime.add_subscription(TypeSubscription("t", "one"))
        if runtime is self.runtime:
            await runtime.start()

    async def publish(self, *numbers: int, key: str = "a") -> None:
        for number in numbers:
            await self.runtime.publish_message(Note(number=number), TopicId("t", key))

    async def next_attempt(self) -> float:
        """Let the delay of the one message that waits for its next attempt pass; tells how long it was."""
        (delay,) = await eventually(lambda: self.clock.due_in, 5)
        self.clock.advance(delay)
        return float(delay)

    async def at_rest(self) -> None:
        await eventually(lambda: not self.client.xlen(self.keys.inbox), 5)
        await eventually(lambda: not self.client.exists(self.keys.run), 5)
        assert not list(self.client.scan_iter(f"sb:{{{self.namespace}*:j:*", count=1000))

    @property
    def keys(self) -> PartitionKeys:
        return PartitionKeys(self.namespace, "one", 0)

    @property
    def letters(self) -> list[dict[str, str]]:
        return [{k.decode(): v.decode() for k, v in f.items()} for _, f in self.client.xrange(self.keys.dlq)]

    def heard(self, key: str = "a") -> Any:
        return json.loads(self.client.hget(self.keys.state(key), "d"))["state"]["heard"]


def failing(times: int, error: Callable[[], BaseException] = lambda: ValueError("no luck")) -> OnNote:
    """A handler that raises so many times."""
    left = [times]

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise error()

    return note
