"""What a tool is told beside its arguments."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Generic

from autogen_core import CancellationToken
from typing_extensions import TypeVar

DepsT_co = TypeVar("DepsT_co", covariant=True, default=object)


@dataclass(frozen=True)
class ToolContext(Generic[DepsT_co]):
    """The first argument of a tool that wants one; a function says so by the annotation.

    Attributes:
        deps: what the tool works with (connections, clients, keys); it is in no message and no state.
        run_id: of the run that the call belongs to.
        call_id: tells the call from the others of its run.
        tool_name: of the tool that is called.
        cancellation_token: cancelled when nobody waits for the result any more.
        attempt: 1, or more when the call is tried again.
        ends_at: when the time of the call is over, by `time.monotonic`; None without a limit.
    """

    deps: DepsT_co = field(repr=False)
    run_id: str
    call_id: str
    tool_name: str = ""
    cancellation_token: CancellationToken = field(default_factory=CancellationToken, repr=False, compare=False)
    attempt: int = 1
    ends_at: float | None = None

    @property
    def idempotency_key(self) -> str:
        """The same at each attempt of this call, on each worker, and no other call has it."""
        return f"{self.run_id}:{self.call_id}"

    def remaining(self) -> float | None:
        """How many seconds are left for the call; 0.0 when they are over, None without a limit."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())
