"""An agent whose stored state this program cannot read waits here for a program that can.

In a rolling upgrade an old worker meets states that a new one has written. The state is in order and so are the
messages, only the program is not the right one: what was published to the agent stays in its inbox, in order, until a
worker of the right version owns the partition. Calls end in the error at once, since somebody waits for them.
"""

from __future__ import annotations

import logging

from stagebell.errors import StateMismatch
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.turn import Entry
from stagebell.runtime.redis.endings import TurnEnding
from stagebell.runtime.redis.services import Services

logger = logging.getLogger("stagebell")

UNREADABLE = "this program cannot read its stored state"
_LOOK_AGAIN_MS = 5_000


def pause(services: Services, activation: Activation, error: StateMismatch, entry: Entry) -> None:
    """Let a publish whose agent could not be loaded wait, before all others; and look again every few seconds."""
    bar(services, activation, error)
    answer_calls(services, activation, error)
    if not services.stopping:
        services.dispatcher.enqueue(activation, entry, first=True)
        services.clock.call_at(services.clock.now_ms() + _LOOK_AGAIN_MS, lambda: look_again(services, activation))


def bar(services: Services, activation: Activation, error: StateMismatch) -> None:
    """Start no more turns of an agent, and say so."""
    kind = activation.id.type, error.stored_type, error.stored_version
    level = logging.DEBUG if kind in services.paused else logging.ERROR  # the first of its kind is news
    services.paused.add(kind)
    logger.log(level, "%s is paused here, what is published to it stays in its inbox: %s", activation.id, error)
    services.dispatcher.bar(activation, UNREADABLE)


def answer_calls(services: Services, activation: Activation, error: StateMismatch) -> None:
    """End the calls that wait for the agent."""
    for entry in list(activation.mailbox or ()):
        message: object = entry.receipt
        if isinstance(message, TurnEnding) and message.answers and services.dispatcher.withdraw(entry):
            message.set_aside(error, has_state=True)


def look_again(services: Services, activation: Activation) -> None:
    """Load the agent anew for its next message: its state may have been put right."""
    if UNREADABLE in activation.barred:
        services.dispatcher.unbar(activation, UNREADABLE)
