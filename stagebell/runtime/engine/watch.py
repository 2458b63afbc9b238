"""Report a turn that waits for something which nobody will ever set."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Collection
from traceback import FrameSummary, format_list
from typing import Any

from stagebell.runtime.engine.turn import Turn

logger = logging.getLogger("stagebell")


class Watch:
    """Warns, once a turn, with the stack, about turns open for longer than `warn_after` seconds with no call open."""

    def __init__(self, turns: Collection[Turn], warn_after: float) -> None:
        self._turns = turns
        self._warn_after = warn_after
        self._watching = False

    def keep(self, loop: AbstractEventLoop) -> None:
        """Watch as long as there are open turns."""
        if not self._watching:
            self._watching = True
            loop.call_later(self._warn_after, self._look, loop)

    def _look(self, loop: AbstractEventLoop) -> None:
        self._watching = False
        now = loop.time()
        for turn in list(self._turns):
            waited = now - (turn.suspended_at or now)
            calling = turn.calls or (turn.receipt is not None and turn.receipt.calling)
            if waited >= self._warn_after and not calling and not turn.warned:
                turn.warned = True
                self._warn(turn, waited)
        if self._turns:
            self.keep(loop)

    def _warn(self, turn: Turn, seconds: float) -> None:
        logger.warning(
            "a turn of %s has waited %.0f s and no call of it is open; what it waits for may never come:\n%s",
            turn.activation.id,
            seconds,
            "".join(format_list(_stack_of(turn.work))),
        )


def _stack_of(awaiting: Any) -> list[FrameSummary]:
    """Where a suspended coroutine waits: its own line first, the innermost one last (a task shows only the first)."""
    found: list[FrameSummary] = []
    while (frame := getattr(awaiting, "cr_frame", None)) is not None:
        code = frame.f_code
        found.append(FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
        awaiting = awaiting.cr_await
    return found
