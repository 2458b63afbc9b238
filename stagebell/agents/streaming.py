"""An answer told while the model writes it: the runtime reads the model's stream, and tells what comes.

Whoever looks on subscribes to the topic of the run, or reads from its handle (`RunHandle.tokens`), and holds nothing: a
slow or vanished reader keeps no connection open. The stream is closed when the answer is complete, its time is over, or
the run is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from autogen_core import TopicId
from autogen_core.models import CreateResult

from stagebell.agents.context import RunContext
from stagebell.agents.messages import TokenChunk
from stagebell.agents.tokens import tell_reader
from stagebell.runtime.engine.immediate import immediate

_SUFFIX: Final = ".tokens"


def tokens_topic(agent_type: str, run_id: str) -> TopicId:
    """The topic that the pieces of a run's answers are published to; its type is that of the agent, with ".tokens"."""
    return TopicId(agent_type + _SUFFIX, run_id)


class Stream:
    """Tells the pieces of the answers of an agent: to the topic of the run, and to who reads it.

    Args:
        published: to the topic; to a reader in any case.
    """

    def __init__(self, *, published: bool = True) -> None:
        self._published = published

    async def answer(self, chunks: AsyncGenerator[str | CreateResult, None], context: RunContext[Any]) -> CreateResult:
        """Tell the pieces of an answer as they come.

        Args:
            chunks: what the client's `create_stream` gives.
            context: the run.

        Returns:
            The whole answer.

        Raises:
            ConnectionError: the stream ended before the answer was complete.
        """
        read, index = bool(context.tokens_to), 0
        async with aclosing(chunks):
            async for chunk in chunks:
                done, text = (True, "") if isinstance(chunk, CreateResult) else (False, chunk)
                piece = TokenChunk(run_id=context.run_id, step=context.step + 1, index=index, text=text, last=done)
                read = await self._tell(context, piece, read=read)
                if isinstance(chunk, CreateResult):
                    return chunk
                index += 1
        raise ConnectionError("the stream ended before the answer was complete")

    async def _tell(self, context: RunContext[Any], piece: TokenChunk, *, read: bool) -> bool:
        """Tell a piece; whether somebody still reads the answer."""
        with immediate():
            if self._published:
                topic = tokens_topic(context.agent.type, context.run_id)
                await context.runtime.publish_message(piece, topic, sender=context.agent)
            return read and await tell_reader(context.runtime, context.tokens_to, context.run_id, piece)
