"""An activation is an agent in memory: its instance, its mailbox, and its open turns.

What holds at all times
    - An idle agent has neither a queue nor a task: `mailbox` is made for the first message that has to wait.
    - A serial agent's open turns form a stack. Only the top turn may be running its handler's code; every turn below
      it awaits a call from which the turn above descends.
    - A message is taken from the mailbox in order, except that a call which descends from the top turn passes those
      that do not: the top turn could not end without it.
    - While an agent is barred (its next attempt is not due, its former owner still runs a turn of it, …) its messages
      wait; only calls that descend from an open turn are let in.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from typing import TYPE_CHECKING

from autogen_core import Agent, AgentId

from stagebell.runtime.engine.turn import Entry, Turn

if TYPE_CHECKING:
    from stagebell.runtime.engine.catalog import HostedType


FREE: frozenset[str] = frozenset()
"""Why an agent that takes messages is barred: one for all, since an empty set has its size, too."""


class Activation:
    """One agent of a hosted type."""

    __slots__ = ("agent", "barred", "closed", "hosted", "id", "mailbox", "making", "retired", "stored", "top")

    def __init__(self, hosted: HostedType, id: AgentId) -> None:
        self.hosted = hosted
        self.id = id
        self.agent: Agent | None = None
        self.closed = False
        self.making: Future[None] | None = None  # an instance is being made, or the former one closed
        self.retired: list[Agent] | None = None  # former instances whose turns have not ended; see `retiring`
        self.mailbox: deque[Entry] | None = None
        self.top: Turn | None = None
        self.barred = FREE  # why its messages have to wait
        self.stored: object = None  # what a transport keeps with the agent, such as its stored version

    def push(self, entry: Entry, *, first: bool = False) -> None:
        """Let a message wait, behind all others or, when it is to be tried again, before them."""
        if self.mailbox is None:
            self.mailbox = deque((entry,))
        elif first:
            self.mailbox.appendleft(entry)
        else:
            self.mailbox.append(entry)

    def take(self) -> Entry | None:
        """The next message that may start now, removed from the mailbox; None when there is none."""
        mailbox = self.mailbox
        if not mailbox:
            return None
        if self.top is None or self.hosted.interleaved:
            if self.barred:
                return None
            entry = mailbox.popleft()
        else:
            found = next((entry for entry in mailbox if self._nested(entry)), None)
            if found is None:
                return None
            mailbox.remove(found)
            entry = found
        if not mailbox:
            self.mailbox = None
        return entry

    @property
    def idle(self) -> bool:
        """True when nothing of the agent is under way here, as far as that can be told (not for interleaved ones)."""
        return self.top is None and not self.mailbox and self.making is None and not self.barred

    def remove(self, entry: Entry) -> bool:
        """Take a waiting message out; False when it does not wait any more."""
        if self.mailbox is None or entry not in self.mailbox:
            return False
        self.mailbox.remove(entry)
        if not self.mailbox:
            self.mailbox = None
        return True

    def has_runnable(self) -> bool:
        """True when `take` would give a message."""
        if not self.mailbox:
            return False
        if self.top is None or self.hosted.interleaved:
            return not self.barred
        return any(map(self._nested, self.mailbox))

    def has_nested(self, entry: Entry) -> bool:
        """True when a waiting message may start although a turn is open, since that turn could not end without it."""
        return self.top is not None and self._nested(entry)

    def admits(self, caller: Turn | None) -> bool:
        """True when a call made by `caller` could start at once."""
        if self.hosted.interleaved or self.top is None:
            return not self.mailbox and not self.barred
        if caller is None or not self.hosted.reentrant or not caller.descends_from(self.top):
            return False
        return not self.has_runnable()  # what waits to be let in was sent before

    def push_turn(self, turn: Turn) -> None:
        """A turn starts."""
        if not self.hosted.interleaved:
            if self.top is not None:
                turn.below = self.top
            self.top = turn

    def pop_turn(self, turn: Turn) -> None:
        """A turn has ended."""
        turn.closed = True
        if self.top is turn:
            self.top = turn.below
        elif not self.hosted.interleaved:
            self._unlink(turn)

    def open_turns(self) -> list[Turn]:
        """The stack of open turns, the top one first (none for interleaved agents)."""
        turns: list[Turn] = []
        turn = self.top
        while turn is not None:
            turns.append(turn)
            turn = turn.below
        return turns

    def _nested(self, entry: Entry) -> bool:
        top = self.top
        if top is None or not self.hosted.reentrant or not entry.is_rpc:
            return False
        if entry.parent is not None:
            return entry.parent.descends_from(top)
        return entry.receipt is not None and entry.receipt.admitted_by(top)

    def _unlink(self, turn: Turn) -> None:
        # A turn below the top ends first when its handler was cancelled and did not wait for its calls.
        above = next((other for other in self.open_turns() if other.below is turn), None)
        if above is not None:
            above.below = turn.below
