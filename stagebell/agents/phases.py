"""The phases that a run goes through, as what happened in it tells them.

observe ──▶ decide ──▶ act ──▶ feedback ──▶ update ──▶ decide ──▶ … ──▶ finish
"""

from __future__ import annotations

from enum import StrEnum

from stagebell.messages.conversation import AnyEntry, Asked, Corrected, Decided, Finished, Returned
from stagebell.messages.tool_calls import FinalOutput


class Phase(StrEnum):
    """What a run does; each round goes from deciding on."""

    OBSERVE = "observe"
    DECIDE = "decide"
    ACT = "act"
    FEEDBACK = "feedback"
    UPDATE = "update"
    FINISH = "finish"


def phases_of(entry: AnyEntry) -> tuple[Phase, ...]:
    """The phases that an entry tells of, in order; none for what was only noted.

    A decision for tools is acted on as soon as it is committed. A result is fed back by being in the state, which it
    changes. An answer that could not be used is fed back with what was wrong.
    """
    match entry:
        case Asked():
            return (Phase.OBSERVE,)
        case Decided(decision=FinalOutput()):
            return (Phase.DECIDE,)
        case Decided():
            return (Phase.DECIDE, Phase.ACT)
        case Returned():
            return (Phase.FEEDBACK, Phase.UPDATE)
        case Corrected():
            return (Phase.DECIDE, Phase.FEEDBACK)
        case Finished():
            return (Phase.FINISH,)
        case _:
            return ()
