"""How a process is told to stop: by SIGTERM or SIGINT, or by whoever watches over it.

    running ──first signal, or request()──▶ stopping ──second signal──▶ gone at once (exit code 128 + signal)

The handlers run between two steps of the interpreter, also while an agent's handler blocks the event loop,
so the second signal always works.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType


class StopRequest:
    """Whether this process was asked to stop; make it in the main thread."""

    def __init__(self, before_exit: Callable[[], None] | None = None) -> None:
        self._asked = False
        self._signalled = False
        self._before_exit = before_exit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None

    def asked(self) -> bool:
        """True once somebody has asked."""
        return self._asked

    def catch_signals(self) -> None:
        """Take SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def request(self) -> None:
        """Ask for an orderly stop; from any thread, and as often as you like."""
        self._asked = True
        loop, event = self._loop, self._event
        if loop is not None and event is not None and not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    async def wait(self) -> None:
        """Wait until somebody asks."""
        self._loop, self._event = asyncio.get_running_loop(), self._event or asyncio.Event()
        if self.asked():  # perhaps before there was a loop
            return
        await self._event.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signalled:
            if self._before_exit is not None:
                self._before_exit()
            os._exit(128 + number)
        self._signalled = True
        self.request()
