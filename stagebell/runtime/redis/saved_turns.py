"""Which messages of a partition must run before all others, when its inbox is read from the beginning.

Those whose turn has left savepoints, which are on top of a state that nothing else may change before, and the turns
that these are nested in. They may lie anywhere in the inbox: a call passes what waits before it, and after a failover
what came later may have lower ids. So the whole inbox is searched for them, unless no turn has savepoints; and those
from which others descend are told first.
That a turn has begun is not enough: what was sent again after a failover counts the attempt of a message whose turn was
open when the server went back, while the message before it is there again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.lookahead import after, callers_of, parse_entry_id
from stagebell.runtime.redis.results import InboxEntry

logger = logging.getLogger("stagebell")

_BATCH = 256

Take = Callable[[Sequence[InboxEntry]], None]


class SavedTurns:
    """Looks for them in one partition; only what was asked last is answered."""

    def __init__(self, link: Link, keys: LeasedKeys, take: Take) -> None:
        self._link = link
        self._keys = keys
        self._take = take
        self._search: _Search | None = None

    @property
    def looking(self) -> bool:
        """True until what was asked last is answered."""
        return self._search is not None

    def look(self) -> None:
        """Ask which turns had begun, and go on with these."""
        self._search = search = _Search(self._link, self._keys, self._found)
        self._link.run(lambda scripts: scripts.attempts(self._keys), search.hear_begun)

    def look_among(self, begun: Collection[str]) -> None:
        """Hand on the messages of those which had begun and must come first, callers before what is nested in them."""
        self._search = _Search(self._link, self._keys, self._found)
        self._search.look_among(begun)

    def _found(self, search: _Search, entries: Sequence[InboxEntry]) -> None:
        if search is self._search:
            self._search = None
            self._take(entries)


class _Search:
    """One search: for savepoints of what had begun, and then for the messages that have some."""

    def __init__(self, link: Link, keys: LeasedKeys, found: Callable[[_Search, Sequence[InboxEntry]], None]) -> None:
        self._link = link
        self._keys = keys
        self._found = found
        self._begun: frozenset[str] = frozenset()
        self._unanswered = 0
        self._wanted: set[str] = set()
        self._entries: dict[str, InboxEntry] = {}  # of all that had begun, by turn id

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
            self._found(self, ())

    def _ask_for_savepoints(self, turn_id: str) -> None:
        def hear(savepoints: Mapping[str, bytes] | BaseException) -> None:
            self._unanswered -= 1
            if savepoints and not isinstance(savepoints, BaseException):
                self._wanted.add(turn_id)
            if not self._unanswered:
                self._read_on("-") if self._wanted else self._found(self, ())

        self._link.run(lambda scripts: scripts.savepoints(self._keys.savepoints(turn_id)), hear)

    def _read_on(self, start: str) -> None:
        self._link.run(lambda scripts: scripts.read(self._keys.inbox, start, _BATCH), self._hear)

    def _hear(self, answer: Sequence[InboxEntry] | BaseException) -> None:
        entries = () if isinstance(answer, BaseException) else answer
        for entry in entries:
            if entry.turn_id in self._begun:
                self._entries[entry.turn_id] = entry
                if entry.turn_id in self._wanted:
                    self._wanted.update(self._begun.intersection(callers_of(entry.envelope)))
        if len(entries) == _BATCH and not self._wanted <= self._entries.keys():
            self._read_on(after(parse_entry_id(entries[-1].entry_id)))
        else:
            found = (entry for entry in self._entries.values() if entry.turn_id in self._wanted)
            self._found(self, sorted(found, key=lambda entry: len(callers_of(entry.envelope))))
