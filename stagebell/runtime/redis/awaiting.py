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

    async def answer(self, answer: Future[T], token: CancellationToken | None, caller: Turn | None = None) -> T:
        """The answer.

        Args:
            answer: cancelled with the token or the caller.
            token: came with the question.
            caller: the turn that asks, when it is one whose calls the engine keeps.

        Raises:
            asyncio.CancelledError: the token or the caller was cancelled.
        """
        if token is None and caller is None:
            return await answer
        waiting = Entry(None, Context(), token=token, reply=answer)
        if token is not None:
            self._tokens.link(asyncio.get_running_loop(), token, waiting)
        if caller is not None:
            caller.calls = [*(caller.calls or ()), waiting]
        try:
            return await answer
        finally:
            if token is not None:
                self._tokens.unlink(token, waiting)
            if caller is not None and caller.calls and waiting in caller.calls:
                caller.calls.remove(waiting)


def _cancel(waiting: Turn | Entry) -> None:
    if waiting.reply is not None and not waiting.reply.done():
        waiting.reply.cancel()
