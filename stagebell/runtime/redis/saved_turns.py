"""Which messages of a partition must be read before all others, when its inbox is read from the beginning.

Turns that had begun at a former owner run again. They may lie anywhere in the inbox: a call passes what waits before
it, and after a failover what came later may have lower ids.
    - Those that have savepoints come first of all, and the turns that they are nested in: these are on top of a state
      that nothing else may change before. That a turn has begun is not enough for this: what was sent again after a
      failover counts the attempt of a message whose turn was open when the server went back, while the message before
      it is there again.
    - The others come in their order, but even when they lie beyond the credit: calls that descend from them are read
      from there, and must find them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.lookahead import EntryId, after, callers_of, is_call, parse_entry_id
from stagebell.runtime.redis.results import InboxEntry

logger = logging.getLogger("stagebell")

_BATCH = 256

Take = Callable[[Sequence[InboxEntry]], None]


class SavedTurns:
    """Looks for them in one partition; only what was asked last is answered.

    Args:
        link: the way to the server.
        keys: the partition's.
        credit: so many messages from the beginning on are read in any case.
        take: hears of messages that come before all that it has not heard of.
        go_on: called when there are no more of them.
    """

    def __init__(self, link: Link, keys: LeasedKeys, credit: int, take: Take, go_on: Callable[[], None]) -> None:
        self._link = link
        self._keys = keys
        self._credit = credit
        self._take = take
        self._go_on = go_on
        self._search: _Search | None = None
        self.found: frozenset[str] = frozenset()
        """Turns that had savepoints, by their ids."""

    @property
    def looking(self) -> bool:
        """True until what was asked last is answered."""
        return self._search is not None

    def look(self) -> None:
        """Ask which turns had begun, and go on with these."""
        search = self._begin()
        self._link.run(lambda scripts: scripts.attempts(self._keys), search.hear_begun)

    def look_among(self, begun: Collection[str]) -> None:
        """Look for the messages of those which had begun."""
        self._begin().look_among(begun)

    def _begin(self) -> _Search:
        self._search = search = _Search(self._link, self._keys, self._credit, self._found)
        return search

    def _found(self, search: _Search, entries: Sequence[InboxEntry], over: bool) -> None:
        if search is self._search:
            self.found = frozenset(search.saved)
            self._take(entries)
            if over:
                self._search = None
                self._go_on()


Found = Callable[["_Search", Sequence[InboxEntry], bool], None]


class _Search:
    """One search: for savepoints of what had begun, for the messages of these turns, and for what these come after."""

    def __init__(self, link: Link, keys: LeasedKeys, credit: int, found: Found) -> None:
        self._link = link
        self._keys = keys
        self._credit = credit
        self._found = found
        self._begun: frozenset[str] = frozenset()
        self.saved: set[str] = set()
        self._unanswered = 0
        self._entries: dict[str, InboxEntry] = {}  # of all that had begun, by turn id
        self._read = self._depth = 0  # how many entries were read, up to the last of these

    def hear_begun(self, answer: Mapping[str, int] | BaseException) -> None:
        """These had begun."""
        if isinstance(answer, BaseException):
            logger.error("which turns of %s had begun is not known: %s", self._keys.tag, answer)
        self.look_among(() if isinstance(answer, BaseException) else answer)

    def look_among(self, begun: Collection[str]) -> None:
        """Ask for the savepoints of each."""
        self._begun = frozenset(begun)
        self._unanswered = len(self._begun)
        for turn_id in self._begun:
            self._ask_for_savepoints(turn_id)
        if not self._begun:
            self._found(self, (), True)

    def _ask_for_savepoints(self, turn_id: str) -> None:
        def hear(savepoints: Mapping[str, bytes] | BaseException) -> None:
            self._unanswered -= 1
            if savepoints and not isinstance(savepoints, BaseException):
                self.saved.add(turn_id)
            if not self._unanswered:
                self._read_from("-", self._hear)

        self._link.run(lambda scripts: scripts.savepoints(self._keys.savepoints(turn_id)), hear)

    def _read_from(self, start: str, hear: Callable[[Sequence[InboxEntry]], None]) -> None:
        def answered(answer: Sequence[InboxEntry] | BaseException) -> None:
            hear(() if isinstance(answer, BaseException) else answer)  # whoever reads next says that it failed

        self._link.run(lambda scripts: scripts.read(self._keys.inbox, start, _BATCH), answered)

    def _hear(self, entries: Sequence[InboxEntry]) -> None:
        for entry in entries:
            self._read += 1
            if entry.turn_id in self._begun:
                self._depth = self._read
                self._entries[entry.turn_id] = entry
        if len(entries) == _BATCH and len(self._entries) < len(self._begun):
            self._read_from(_after(entries[-1]), self._hear)
        else:
            self._tell()

    def _tell(self) -> None:
        first = set(self.saved)
        for turn_id in self.saved & self._entries.keys():
            first.update(callers_of(self._entries[turn_id].envelope))
        found = sorted(
            (entry for turn_id, entry in self._entries.items() if turn_id in first),
            key=lambda entry: len(callers_of(entry.envelope)),
        )
        ends = {
            entry.agent: parse_entry_id(entry.entry_id)
            for turn_id, entry in self._entries.items()
            if turn_id not in first and not is_call(entry.envelope)
        }
        deep = bool(ends) and self._depth > self._credit
        self._found(self, found, not deep)
        if deep:
            self._read_from("-", lambda entries: self._tell_in_order(ends, entries))

    def _tell_in_order(self, ends: Mapping[str, EntryId], entries: Sequence[InboxEntry]) -> None:
        """Tell what lies in the inbox of each agent up to the last of its turns that had begun."""
        wanted = [each for each in entries if each.agent in ends and parse_entry_id(each.entry_id) <= ends[each.agent]]
        more = len(entries) == _BATCH and parse_entry_id(entries[-1].entry_id) < max(ends.values())
        self._found(self, wanted, not more)
        if more:
            self._read_from(_after(entries[-1]), lambda entries: self._tell_in_order(ends, entries))


def _after(entry: InboxEntry) -> str:
    return after(parse_entry_id(entry.entry_id))
