"""Wait for an answer, or for the cancellation of the token that came with the question."""

from __future__ import annotations

import asyncio
from asyncio import Future
from contextvars import Context
from typing import TypeVar

from autogen_core import CancellationToken

from stagebell.runtime.engine.cancellation import TokenLinks
from stagebell.runtime.engine.turn import Entry, Turn

T = TypeVar("T")


class Awaiting:
    """Answers that one process waits for."""

    def __init__(self) -> None:
        self._tokens = TokenLinks(_cancel)

    async def answer(self, answer: Future[T], token: CancellationToken | None) -> T:
        """The answer.

        Raises:
            asyncio.CancelledError: the token was cancelled.
        """
        if token is None:
            return await answer
        waiting = Entry(None, Context(), token=token, reply=answer)
        self._tokens.link(asyncio.get_running_loop(), token, waiting)
        try:
            return await answer
        finally:
            self._tokens.unlink(token, waiting)


def _cancel(waiting: Turn | Entry) -> None:
    if waiting.reply is not None and not waiting.reply.done():
        waiting.reply.cancel()
