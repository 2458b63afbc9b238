"""An agent whose stored state this program cannot read waits here for a program that can.

In a rolling upgrade an old worker meets states that a new one has written. The state is in order and so are the
messages, only the program is not the right one: what was published to the agent stays in its inbox, in order, until a
worker of the right version owns the partition. Calls end in the error at once, since somebody waits for them.
"""

from __future__ import annotations

import logging
from typing import Protocol

from stagebell.errors import StateMismatch
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.redis.endings import TurnEnding
from stagebell.runtime.redis.services import Services

logger = logging.getLogger("stagebell")

UNREADABLE = "this program cannot read its stored state"
_LOOK_AGAIN_MS = 5_000
_RUN_AGAIN_MS = 60_000


class Waits(Protocol):
    """A publish that can wait until its agent's state can be read."""

    def wait_for_state(self, look_again_ms: int) -> None:
        """Wait, and let wait what comes after it for the same agent; look again after a while."""
        ...


def pause(services: Services, activation: Activation, error: StateMismatch, message: Waits) -> None:
    """Let a publish whose agent could not be loaded wait, before all others; and look again every few seconds."""
    bar(services, activation, error)
    message.wait_for_state(_LOOK_AGAIN_MS)


def wait_on(message: Waits) -> None:
    """The same for one that has run until it met a savepoint of a newer program: it does that again less often."""
    message.wait_for_state(_RUN_AGAIN_MS)


def bar(services: Services, activation: Activation, error: StateMismatch) -> None:
    """Start no more turns of an agent, say so, and end the calls that wait for it."""
    kind = activation.id.type, error.stored_type, error.stored_version
    level = logging.DEBUG if kind in services.paused else logging.ERROR  # the first of its kind is news
    services.paused.add(kind)
    logger.log(level, "%s is paused here, what is published to it stays in its inbox: %s", activation.id, error)
    services.dispatcher.bar(activation, UNREADABLE)
    _answer_calls(services, activation, error)


def _answer_calls(services: Services, activation: Activation, error: StateMismatch) -> None:
    """End the calls that wait for the agent."""
    for entry in list(activation.mailbox or ()):
        message: object = entry.receipt
        if isinstance(message, TurnEnding) and message.answers and services.dispatcher.withdraw(entry):
            message.set_aside(error, has_state=True)
