"""How many turns that were started by messages from outside may be open at once in a process.

A call from a turn is always let in, whatever the limit: the turn that waits for it holds one of the places. When such a
call waits behind other messages of its agent, these go on, too. Messages that stay in the process are not counted.
"""

from __future__ import annotations

from collections.abc import MutableSequence

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.turn import Entry, Turn


class RunningLimit:
    """`most` such turns are open; None: there is no limit. `ready` are the agents that may take a message."""

    def __init__(self, ready: MutableSequence[Activation]) -> None:
        self.most: int | None = None
        self.reached = False
        self._ready = ready
        self._open = 0
        self._held_back: dict[Activation, None] = {}

    def counts(self, entry: Entry) -> bool:
        """True for a message from outside."""
        return self.most is not None and entry.receipt is not None and entry.receipt.from_outside

    def started(self, turn: Turn) -> None:
        """A turn of such a message starts."""
        turn.limited = True
        self._open += 1
        self.reached = self.most is not None and self._open >= self.most

    def ended(self) -> None:
        """It has ended: another agent may take a message."""
        self._open -= 1
        self.reached = self.most is not None and self._open >= self.most
        self.let_on()

    def holds_back(self, activation: Activation) -> bool:
        """True when an agent has to wait: the limit is reached, and all its messages are from outside."""
        if not activation.mailbox or (activation.top is not None and not activation.hosted.interleaved):
            return False
        if not all(map(self.counts, activation.mailbox)):
            return False
        self._held_back[activation] = None
        return True

    def lets_in(self, activation: Activation, entry: Entry) -> bool:
        """True when an agent that had to wait may go on, for the sake of this message."""
        if activation not in self._held_back or self.counts(entry):
            return False
        del self._held_back[activation]
        return True

    def let_on(self) -> bool:
        """Let the agent that has waited longest go on when there is a place; True when there was one."""
        if self.reached or not self._held_back:
            return False
        first = next(iter(self._held_back))
        del self._held_back[first]
        self._ready.append(first)
        return True

    def clear(self) -> None:
        """Nobody waits any more."""
        self._held_back.clear()
