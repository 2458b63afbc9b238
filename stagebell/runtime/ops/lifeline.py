"""The line between a supervisor and one child: a pair of sockets that nobody else has.

The child tells over it that it is ready, or why it cannot be. The supervisor says nothing: when its end
closes, the child stops in order. The kernel closes it also for a supervisor that was killed, so no child is
left behind.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SPARE_SECONDS = 3.0
"""How long a worker may take to stop, beyond the grace that its running handlers have."""


class Lifeline:
    """The child's end; `descriptor` was inherited from the supervisor."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        # Programs that an agent starts must not keep the line open.
        self._socket.set_inheritable(False)

    def watch(self, on_end: Callable[[], None], grace: float) -> None:
        """Call `on_end` when the supervisor lets go, and end the process by force `grace` + 3 seconds later.

        A thread does it, since the event loop may be blocked.
        """
        threading.Thread(target=self._watch, args=(on_end, grace), name="stagebell-lifeline", daemon=True).start()

    def report(self, **facts: Any) -> None:
        """Tell the supervisor; nothing happens if it is gone."""
        with suppress(OSError):
            self._socket.sendall(json.dumps(facts).encode() + b"\n")

    def _watch(self, on_end: Callable[[], None], grace: float) -> None:
        with suppress(OSError):
            while self._socket.recv(64):
                pass
        on_end()
        time.sleep(grace + SPARE_SECONDS)
        os._exit(1)
