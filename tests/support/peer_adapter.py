"""`RedisRuntime` behind the surface of AutoGen's in-process class, for AutoGen's own tests.

Those tests look at agents before a start and after a stop, and expect the first exception of a handler of a publish
from `stop_when_idle`. Each instance has a namespace of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from autogen_core import Agent, AgentId, InterventionHandler, TopicId, try_get_known_serializers_for_type
from opentelemetry.trace import TracerProvider

from stagebell import RedisRuntime


class PeerRedisRuntime(RedisRuntime):
    """Constructed as `SingleThreadedAgentRuntime` is; the server's URL is in PEER_REDIS_URL."""

    def __init__(
        self,
        *,
        intervention_handlers: Sequence[InterventionHandler] | None = None,
        tracer_provider: TracerProvider | None = None,
        ignore_unhandled_exceptions: bool = True,
    ) -> None:
        super().__init__(
            os.environ["PEER_REDIS_URL"],
            namespace=f"peer-{uuid4().hex}",
            intervention_handlers=intervention_handlers,
            tracer_provider=tracer_provider,
        )
        self._ignore = ignore_unhandled_exceptions
        self._error: BaseException | None = None
        self._up = False

    async def start(self) -> None:
        await self._begin()

    async def _begin(self) -> None:
        if not self._up:
            self._up = True
            await super().start()

    async def stop(self) -> None:
        if self._up:
            self._up = False
            await super().stop()
        self._raise()

    async def stop_when_idle(self, timeout: float | None = None) -> None:
        await super().stop_when_idle(timeout)
        self._raise()

    async def close(self) -> None:
        self._up = False
        await super().close()

    async def publish_message(self, message: Any, topic_id: TopicId, **options: Any) -> None:
        # In one process nothing is encoded, so AutoGen publishes types that nobody has registered.
        self.add_message_serializer(try_get_known_serializers_for_type(type(message)))
        await super().publish_message(message, topic_id, **options)

    async def try_get_underlying_agent_instance(self, id: AgentId, type: type[Any] = Agent) -> Any:
        await self._begin()
        return await super().try_get_underlying_agent_instance(id, type)

    async def save_state(self) -> Mapping[str, Any]:
        await self._begin()
        return await super().save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        await self._begin()
        await super().load_state(state)

    def _on_publish_error(self, error: BaseException) -> None:
        if not self._ignore and self._error is None:
            self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
