"""A partition that this worker owns: which of its messages are in memory, and which are still to be read.

What holds at all times
    - `last` is the highest entry id that was read; every entry up to it is in `pending`, is held back (`holding`), was
      consumed, or came back from the dead (see `audit`).
    - Messages are handed on in the order of the inbox, after those of turns that must run again (`saved_turns`).
    - A bell that carries a message is used only when nothing before it is missing, which the entry before it, that it
      names, tells; else the inbox is read.
    - At most `credit` messages are in memory; the rest is read when half of them are done. What must not wait for that
      is read early (`lookahead`), and passed over when its place in the inbox comes.
    - Messages of an agent whose turn goes on at a former owner (`held`) wait here unread: nothing of them could be
      settled before its hold is over (see `held_elsewhere`).
    - After `hand_over` nothing more is read. Turns that are open go on under their holds, each for itself: when the
      server refuses one, the others are none the worse (see `held_here`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from autogen_core import AgentId

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.redis.ends import Ends
from stagebell.runtime.redis.holding import Holding
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.lookahead import (
    EntryId,
    LookAhead,
    after,
    is_call,
    may_be_call,
    parse_entry_id,
    wants_answer,
)
from stagebell.runtime.redis.parked import Incoming, Parked
from stagebell.runtime.redis.phantoms import Phantoms
from stagebell.runtime.redis.requests import Turn
from stagebell.runtime.redis.results import InboxEntry
from stagebell.runtime.redis.saved_turns import SavedTurns

logger = logging.getLogger("stagebell")


Accept = Callable[["Partition", str, str, str, bytes], Incoming]
Leave = Callable[[Activation], None]


class Partition:
    """One owned partition.

    `accept` takes a message that was read (entry id, turn id, agent, envelope), `leave` an agent that is not ours.
    """

    def __init__(self, keys: LeasedKeys, token: str, link: Link, accept: Accept, leave: Leave, *, credit: int) -> None:
        self.keys = keys
        self.token = token
        self.pending: dict[str, Incoming] = {}
        self.agents: dict[str, Activation] = {}
        self.attempts: dict[str, int] = {}
        self.owned = True
        self.draining = False
        self.careful = False  # what is in the inbox now may have killed its former owner
        self.ends = Ends(link, self)
        self.held: set[str] = set()
        self.open_turns: dict[str, tuple[str, str]] = {}  # after a release, by entry id: agent and turn id
        self.on_hold_over: Callable[[str], None] = lambda agent: None
        self.on_start_over: Callable[[], None] = lambda: None
        self._link = link
        self._accept = accept
        self._leave = leave
        self.credit = credit
        self.last: EntryId = (0, 0)
        # A bell that tells of an entry up to this one may be from before all was forgotten.
        self._told: EntryId = (0, 0)
        self._more = True
        self._reading = False
        self.generation = 0  # grows when what is being read is not wanted any more
        self._saved = SavedTurns(link, keys, credit, self._take_first, self._start_reading)
        self._ahead = LookAhead(self, link)
        self._phantoms = Phantoms(self, link)
        self.holding = Holding()

    @property
    def full(self) -> bool:
        """True when no more messages are taken in the order of the inbox."""
        return self._taken >= self.credit

    @property
    def _taken(self) -> int:
        return len(self.pending) - self.holding.heads

    @property
    def busy(self) -> bool:
        """True while messages of it are in memory."""
        return bool(self.pending)

    @property
    def handed_on_everything(self) -> bool:
        """True when nothing is known to wait in the inbox."""
        return not self._more and not self._reading

    # -- messages come in

    def heard(self, entry_id: str, before: str, turn_id: str, agent: str, envelope: bytes | None) -> None:
        """A bell rang for an entry of this partition, which came after the entry `before` ("-": none)."""
        if not self.owned or self.draining:
            return
        if (known := self.pending.get(entry_id)) is not None:
            if known.turn_id != turn_id:
                logger.warning("%s: %s is another entry now: reading again", self.keys.inbox, entry_id)
                self.start_over()
            return
        if self._reading or self._more:
            self._read_later(envelope)  # what is being read now may have been asked for before this entry came
            return
        id = parse_entry_id(entry_id)
        if id <= self.last:
            return
        missed = before != "-" and parse_entry_id(before) > self.last
        if missed or envelope is None or self.full or id <= self._told:
            self._read_later(envelope)
            return
        self._take(entry_id, id, turn_id, agent, envelope)

    def _read_later(self, envelope: bytes | None) -> None:
        self._more = True
        self._read_on()
        if may_be_call(envelope):
            self._ahead.look_for_calls()

    def has_consumed(self, entry_id: str) -> bool:
        """True when a message that is not in memory was: all before it were read, and this one is not held back."""
        return not self.draining and parse_entry_id(entry_id) <= self.last and not self.holding.has(entry_id)

    def read_after_others(self, begun: Collection[str]) -> None:
        """Read what former owners have left, and first of that what must run again."""
        self._saved.look_among(begun)

    def had_savepoints(self, turn_id: str) -> bool:
        """True when a former owner has left savepoints of this turn, or this one before all was forgotten."""
        return turn_id in self._saved.found

    def _take_first(self, entries: Sequence[InboxEntry]) -> None:
        for entry in entries:
            if self.owned and not self.draining and not self.holds(entry):
                self.take_early(entry)

    def _start_reading(self) -> None:
        self._read_on()
        self._ahead.look_for_calls()

    def read(self) -> None:
        """Read on from the inbox when there may be more and there is room for it."""
        if self._more:
            self._read_on()

    def done(self, entry_id: str) -> None:
        """A message was consumed."""
        message = self.pending.pop(entry_id, None)
        if self.ends.wanted and message is not None:
            self.ends.consumed(message, entry_id)
        if self.open_turns:
            self._hold_over(entry_id)
        if self._more and self._taken <= self.credit // 2:
            self._read_on()

    def leave(self, entry_id: str) -> None:
        """A message will not be consumed here."""
        self.pending.pop(entry_id, None)
        if entry_id in self.open_turns:
            agent, turn_id = self.open_turns[entry_id]
            turn = Turn(self.keys, self.token, agent, entry_id, turn_id)
            self._link.run(lambda scripts: scripts.drop_hold(turn), self._dropped)
            self._hold_over(entry_id)

    def _dropped(self, outcome: bool | BaseException) -> None:
        if isinstance(outcome, BaseException):  # whoever owns the agent now waits until the hold's time is over
            logger.debug("a hold of %s could not be given up: %s", self.keys.tag, outcome)

    def _read_on(self) -> None:
        if self._reading or self._saved.looking or not self.owned or self.draining or self.full:
            return
        self._reading, self._more = True, False
        room = self.credit - self._taken
        start = after(self.last)
        generation = self.generation
        self._link.run(
            lambda scripts: scripts.read(self.keys.inbox, start, room),
            lambda answer: self._read(answer, room, generation),
        )

    def _read(self, answer: BaseException | Sequence[InboxEntry], room: int, generation: int) -> None:
        self._reading = False
        if generation != self.generation:  # asked for before everything was forgotten
            self._read_on()
            return
        if isinstance(answer, BaseException):
            logger.error("the inbox %s cannot be read: %s", self.keys.inbox, answer)
            self._more = True
            return
        if not self.owned:
            return
        known = self.last
        for entry in answer:
            id = parse_entry_id(entry.entry_id)
            if entry.entry_id in self.pending:
                self.last = max(self.last, id)
            elif id > known:
                self._take(entry.entry_id, id, entry.turn_id, entry.agent, entry.envelope)
        if len(answer) >= room:
            self._more = True
        else:
            self.careful = False
        if self._more:
            self._read_on()
            self._ahead.look_for_calls()

    def holds(self, entry: InboxEntry) -> bool:
        """True when the message is in memory, or is to stay in the inbox."""
        return entry.entry_id in self.pending or self._stays(entry.agent, entry.envelope)

    def take_early(self, entry: InboxEntry) -> None:
        """Hand a message on that lies beyond the credit."""
        self._park_or_take(*entry)

    def _take(self, entry_id: str, id: EntryId, turn_id: str, agent: str, envelope: bytes) -> None:
        self.last = max(self.last, id)
        if self._stays(agent, envelope):
            self.holding.of(agent).ids[entry_id] = None
        else:
            self._park_or_take(entry_id, turn_id, agent, envelope)

    def _park_or_take(self, entry_id: str, turn_id: str, agent: str, envelope: bytes) -> None:
        if agent in self.held:
            self.pending[entry_id] = Parked(self, entry_id, turn_id, agent, envelope)
        else:
            self.take(entry_id, turn_id, agent, envelope)

    def take(self, entry_id: str, turn_id: str, agent: str, envelope: bytes) -> None:
        """Hand a message on."""
        self.pending[entry_id] = message = self._accept(self, entry_id, turn_id, agent, envelope)
        if self.ends.wanted:
            self.ends.taken(message, entry_id)

    # -- messages that have to wait

    def hold_back(self, agent: AgentId, head: str, reason: str = "", *, answers: bool = False) -> None:
        """Leave what comes after this message for the same agent in the inbox, until `release`.

        Args:
            agent: the agent.
            head: the entry that waits; it stays in memory, and takes no credit.
            reason: why the agent is paused, if this program can do nothing about it.
            answers: calls to it are handed on, for they will be answered with that reason.
        """
        held = self.holding.of(str(agent))
        held.heads.add(head)
        held.reason = held.reason or reason
        held.answers = answers
        if 2 * len(self.pending) <= self.credit and not reason:
            return  # what is in memory for it by now is in nobody's way, and will soon go on
        first = parse_entry_id(head)
        for entry_id, message in list(self.pending.items()):
            if message.agent == agent and parse_entry_id(entry_id) > first and message.let_go():
                held.ids[entry_id] = None

    def release(self, agent: AgentId, head: str) -> None:
        """The message that the others waited for takes its turn, or is gone: read those others."""
        position = self.holding.release(str(agent), head)
        if position is not None and position < self.last:
            self.generation += 1  # what is being read now begins too late
            self.last, self._more = position, True
            self._read_on()

    def _stays(self, agent: str, envelope: bytes) -> bool:
        if not self.holding or agent not in self.holding:
            return False
        return not (wants_answer(envelope) if self.holding.of(agent).answers else is_call(envelope))

    async def _look_for_heads(self) -> None:
        """An operator may have deleted a message that this program cannot read."""
        for agent, head in self.holding.paused_heads():
            if not await self._link.ask("XRANGE", self.keys.inbox, head, head) and head in self.pending:
                self.pending[head].forget()
                self.release(AgentId.from_str(agent), head)

    # -- when memory and store do not agree

    async def audit(self) -> None:
        """Compare with the server: read what a lost bell did not tell, and notice what came back from the dead.

        An entry that is in the inbox and neither in memory nor new was consumed once: the server lost writes, and
        nothing in memory can be trusted. Counts that agree may hide such a one behind one that the server has lost.
        """
        length: int = await self._link.ask("XLEN", self.keys.inbox)
        known = len(self.pending) + self.holding.entries
        if not self.owned or self.draining:
            return
        if length > known:
            self._link.run(lambda scripts: scripts.read(self.keys.inbox, "-", self.credit), self._compare)
            return
        self._phantoms.look()
        if length < known:
            self._more = True
            self._read_on()
            await self._look_for_heads()

    def _compare(self, entries: Sequence[InboxEntry] | BaseException) -> None:
        # Not in a coroutine: until that went on, messages that `entries` shows could be consumed.
        if isinstance(entries, BaseException) or not self.owned or self.draining:
            return
        known = [entry.entry_id for entry in entries if parse_entry_id(entry.entry_id) <= self.last]
        returned = [entry_id for entry_id in known if entry_id not in self.pending and not self.holding.has(entry_id)]
        if returned:
            logger.warning("%s: %s is back, the server lost writes: reading again", self.keys.inbox, returned[0])
            self.start_over()
        else:
            self._more = True
            self._read_on()
            self._ahead.look_for_calls()
            self._ahead.relieve()

    def forget_agent(self, agent: AgentId) -> None:
        """Forget what is in memory for one agent."""
        for message in [message for message in self.pending.values() if message.agent == agent]:
            message.forget()

    def start_over(self) -> None:
        """Forget what is in memory and read the inbox again; the token stays."""
        if not self.owned:
            return
        self._forget_pending()
        self.generation += 1
        self._told = max(self._told, self.last)
        self.last, self._more = (0, 0), True
        self.ends.start_over()
        self.on_start_over()
        self._ahead.start_over()
        self._saved.look()

    def drain(self) -> None:
        """Take no more messages, and let those go that were not started; the inbox keeps them."""
        self.draining = True
        self.generation += 1  # what a read under way brings comes after what is let go here
        self.holding.clear()
        for message in list(self.pending.values()):
            message.forget_unless_started()

    def lose(self) -> None:
        """The partition belongs to another worker now, which runs its agents: here they would be loaded anew."""
        self.owned = False
        self._forget_pending()
        agents, self.agents = self.agents, {}
        for activation in agents.values():
            self._leave(activation)

    def hand_over(self) -> list[tuple[str, str]]:
        """Another worker may have it; open turns go on here. Returns those that need a hold: agent and turn id."""
        self.drain()
        self.owned = False
        for entry_id, message in self.pending.items():
            if (turn := message.held_turn) is not None:
                self.open_turns[entry_id] = turn
        return list(self.open_turns.values())

    def _hold_over(self, entry_id: str) -> None:
        agent, _ = self.open_turns.pop(entry_id, ("", ""))
        if agent and all(agent != other for other, _ in self.open_turns.values()):
            self.on_hold_over(agent)

    def let_go(self) -> None:
        """The runtime stops. Its agents stay in memory until it is closed."""
        self.owned = False
        self._forget_pending()

    def _forget_pending(self) -> None:
        self.holding.clear()
        pending, self.pending = self.pending, {}
        for message in pending.values():
            message.forget()
