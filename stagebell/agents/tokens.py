"""Answers read from the handle of a run while the model writes them.

    Runs.start(tokens=True) ──── StartRun(tokens_to=…) ───▶ the run
    RunHandle.tokens ◀── Pieces ◀── Listener ◀── PieceWritten ── the run: pieces at once, its end with the commit

The listener is one agent of the reading process for all runs that it reads; nothing of it is stored. A piece that finds
no listener any more is lost, and the run goes on. The end comes behind the last piece, by the same way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final, cast
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from autogen_core import AgentId, AgentRuntime, MessageContext, RoutedAgent, message_handler
from autogen_core import try_get_known_serializers_for_type as serializers_for

from stagebell.agents.messages import PieceWritten, TokenChunk
from stagebell.errors import ServerError, StagebellError
from stagebell.runtime.engine.options import agent_options
from stagebell.runtime.engine.ports import Tells

logger = logging.getLogger("stagebell")

_PATIENCE: Final = 1.0  # seconds that a run waits for the process of who reads it; it may be gone


class Pieces:
    """The pieces of one run's answers, in order; whoever iterates waits for the next one.

    Attributes:
        address: where they are sent.
    """

    def __init__(self, run_id: str, address: str) -> None:
        self.address = address
        self._run_id = run_id
        self._queue: asyncio.Queue[TokenChunk | None] = asyncio.Queue()
        self._ended = False

    def hear(self, message: PieceWritten) -> None:
        """A piece was written, or a run has ended: this one, or one that took over for it."""
        if message.chunk is not None:
            self._queue.put_nowait(message.chunk)
        elif message.run_id == self._run_id:
            self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[TokenChunk]:
        while not self._ended:
            chunk = await self._queue.get()
            if chunk is None:
                self._ended = True
            else:
                yield chunk


@agent_options(process_bound=True)
class Listener(RoutedAgent):
    """Hears the pieces for all readers of this process."""

    def __init__(self) -> None:
        super().__init__("Hears what models write.")
        self.readers = WeakValueDictionary[str, Pieces]()

    @message_handler
    async def on_piece(self, message: PieceWritten, ctx: MessageContext) -> None:
        """Hand it on to its reader, if that is still there."""
        reader = self.readers.get(message.reader)
        if reader is not None:
            reader.hear(message)


class Listening:
    """The listener of a runtime, made when it is first wanted; the runtime keeps it, and nothing here keeps that."""

    def __init__(self) -> None:
        self._agent = AgentId(f"stagebell.tokens-{uuid4().hex[:12]}", "here")
        self._listener: ref[Listener] | None = None
        self._registering = asyncio.Lock()

    async def reader(self, runtime: AgentRuntime, run_id: str) -> Pieces:
        """Somebody who reads a run that is about to start."""
        async with self._registering:
            listener = None if self._listener is None else self._listener()
            if listener is None:
                runtime.add_message_serializer(serializers_for(PieceWritten))
                listener = Listener()
                await runtime.register_agent_instance(listener, self._agent)
                self._listener = ref(listener)
        id = uuid4().hex[:8]
        pieces = listener.readers[id] = Pieces(run_id, f"{self._agent}#{id}")
        return pieces


_of_runtimes = WeakKeyDictionary[AgentRuntime, Listening]()


async def reader_of(runtime: Any, run_id: str) -> Pieces:
    """Somebody who reads, by way of this runtime, a run that is about to start.

    Raises:
        ValueError: the runtime hosts no agents.
    """
    if not hasattr(runtime, "register_agent_instance"):
        raise ValueError(f"a {type(runtime).__name__} hosts no agent that could listen: read tokens from a runtime")
    return await _of_runtimes.setdefault(runtime, Listening()).reader(runtime, run_id)


async def tell_reader(runtime: Any, tokens_to: str, run_id: str, chunk: TokenChunk | None = None) -> bool:
    """Tell who reads a run what was written, or without a chunk that the run has ended.

    Returns:
        False when nobody hears it any more.
    """
    agent, _, reader = tokens_to.rpartition("#")
    message = PieceWritten(reader=reader, run_id=run_id, chunk=chunk)
    try:
        async with asyncio.timeout(_PATIENCE):
            await cast(Tells, runtime).tell(message, AgentId.from_str(agent))
    except ServerError:
        raise  # the turn comes again
    except (StagebellError, TimeoutError) as error:
        logger.debug("nobody reads run %s any more: %s", run_id, error)
        return False
    return True
