"""How the job reaches the agents: from another process through the server, or in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from autogen_core import AgentId, AgentRuntime, TopicId

from examples.audit.messages import Progress, Ranking
from examples.audit.report import Report
from examples.audit.setup import setup
from stagebell import LocalRuntime, Publisher

CALL_SECONDS = 60.0


class Outside(Protocol):
    """What a program without agents can do."""

    async def publish(self, message: object, topic: TopicId) -> None:
        """Publishes an event."""

    async def call(self, message: object, recipient: AgentId) -> Any:
        """Asks an agent and returns its answer."""


@asynccontextmanager
async def across_processes(url: str, namespace: str) -> AsyncGenerator[Outside, None]:
    """Reaches agents in worker processes; this process hosts none."""
    async with Publisher(url, namespace=namespace) as publisher:
        publisher.register(Progress, Ranking, Report)
        yield _ThroughPublisher(publisher)


@asynccontextmanager
async def in_this_process() -> AsyncGenerator[Outside, None]:
    """Hosts the agents here, set up by the same function as in a worker."""
    async with LocalRuntime() as runtime:
        await setup(runtime)
        yield _ThroughRuntime(runtime)


class _ThroughPublisher:
    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish(self, message: object, topic: TopicId) -> None:
        await self._publisher.publish(message, topic)

    async def call(self, message: object, recipient: AgentId) -> Any:
        return await self._publisher.call(message, recipient, timeout=CALL_SECONDS)


class _ThroughRuntime:
    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime

    async def publish(self, message: object, topic: TopicId) -> None:
        await self._runtime.publish_message(message, topic)

    async def call(self, message: object, recipient: AgentId) -> Any:
        return await self._runtime.send_message(message, recipient)
