"""An answer told while the model writes it: the runtime reads the model's stream, and publishes what comes.

Whoever looks on subscribes to the topic of the run, and holds nothing: a slow or vanished reader keeps no connection
open. The stream is closed when the answer is complete, its time is over, or the run is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from autogen_core import AgentId, TopicId
from autogen_core.models import CreateResult

from stagebell.agents.context import RunContext
from stagebell.agents.messages import TokenChunk
from stagebell.runtime.engine.immediate import immediate

_SUFFIX: Final = ".tokens"


def tokens_topic(agent_type: str, run_id: str) -> TopicId:
    """The topic that the pieces of a run's answers are published to; its type is that of the agent, with ".tokens"."""
    return TopicId(agent_type + _SUFFIX, run_id)


class Stream:
    """Publishes the pieces of the answers of an agent."""

    async def answer(self, chunks: AsyncGenerator[str | CreateResult, None], context: RunContext[Any]) -> CreateResult:
        """Publish the pieces of an answer as they come.

        Args:
            chunks: what the client's `create_stream` gives.
            context: the run.

        Returns:
            The whole answer.

        Raises:
            ConnectionError: the stream ended before the answer was complete.
        """
        topic, index = tokens_topic(context.agent.type, context.run_id), 0
        async with aclosing(chunks):
            async for chunk in chunks:
                if isinstance(chunk, CreateResult):
                    await self._publish(context, topic, index, "", last=True)
                    return chunk
                await self._publish(context, topic, index, chunk)
                index += 1
        raise ConnectionError("the stream ended before the answer was complete")

    async def _publish(
        self, context: RunContext[Any], topic: TopicId, index: int, text: str, *, last: bool = False
    ) -> None:
        chunk = TokenChunk(run_id=context.run_id, step=context.step + 1, index=index, text=text, last=last)
        sender = AgentId(context.agent.type, context.agent.key)
        with immediate():
            await context.runtime.publish_message(chunk, topic, sender=sender)
