"""What the journal says of a call that its own turn gave up: a time-out around it, a task that was cancelled.

When the turn runs again, the same code will give the call up again: the reply must not come, and the call not fail,
before it does. Should the code not do it (what made it give up lies outside of the turn), the call is cancelled after
about twice the time that it had.
"""

from __future__ import annotations

from typing import Final

from stagebell.messages.codec import pack
from stagebell.messages.envelope import Envelope

_GIVEN_UP: Final = "stagebell.given_up"
_SLACK_MS: Final = 2_000


def given_up(id: str, recipient: str, waited: float) -> bytes:
    """The record of a call that was given up `waited` seconds after it was made."""
    data = str(max(0, round(waited * 1000))).encode()
    return pack(Envelope(id=id, type=_GIVEN_UP, kind="failure", data=data, sender=recipient))


def patience_after(outcome: Envelope) -> int | None:
    """For how many milliseconds a call waits for being given up again; None when it was not given up."""
    if outcome.type != _GIVEN_UP:
        return None
    return 2 * int(outcome.data) + _SLACK_MS
