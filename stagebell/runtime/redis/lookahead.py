"""What lies beyond the credit of a partition and must not wait until what lies before it is done.

A partition holds `credit` messages in memory. When these all wait, what they wait for may lie behind them in the inbox:
    - A call from a turn. Somebody's turn is open until it is answered, perhaps that of the agent for which all that is
      in memory waits (A calls B, and B calls A). Such calls are always read: they are not many more than open turns.
    - When a few agents hold all the credit, and are slow, messages for other agents. Some are read, again and again.
Both keep the order of the messages of each agent, except that a call may pass what is no call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from autogen_core import AgentId

from stagebell.errors import MessageError
from stagebell.messages.codec import unpack
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.results import InboxEntry

EntryId = tuple[int, int]

_BATCH = 256
_FAR = 1024  # so far is looked for messages of other agents
_FEW = 8  # so many agents are few
_SHARE = 8  # messages of one agent that are read beyond the credit


class Message(Protocol):
    """A message in memory."""

    agent: AgentId


class Looked(Protocol):
    """The partition, as far as it matters here."""

    keys: LeasedKeys
    owned: bool
    draining: bool
    last: EntryId
    generation: int
    credit: int

    @property
    def full(self) -> bool:
        """True when the credit is used up."""
        ...

    def in_memory(self) -> Iterator[AgentId]:
        """The agents of the messages in memory."""
        ...

    def holds(self, entry: InboxEntry) -> bool:
        """True when the message is in memory."""
        ...

    def take_early(self, entry: InboxEntry) -> None:
        """Hand a message on out of the order of the inbox."""
        ...


class LookAhead:
    """Looks beyond the credit of one partition."""

    def __init__(self, partition: Looked, link: Link) -> None:
        self._partition = partition
        self._link = link
        self._position: EntryId = (0, 0)  # up to here there are no more calls
        self._looking = False
        self._again = False

    def start_over(self) -> None:
        """Everything is read anew."""
        self._position = (0, 0)

    # -- calls

    def look_for_calls(self) -> None:
        """Read the calls from turns that lie beyond the credit and were not seen yet."""
        partition = self._partition
        if self._looking:
            self._again = True
            return
        if not partition.full or not partition.owned or partition.draining:
            return
        self._looking, self._again = True, False
        generation = partition.generation
        start = max(self._position, partition.last)
        self._link.run(
            lambda scripts: scripts.read(partition.keys.inbox, after(start), _BATCH),
            lambda answer: self._take_calls(answer, generation),
        )

    def _take_calls(self, answer: BaseException | Sequence[InboxEntry], generation: int) -> None:
        self._looking = False
        for id, entry in self._valid(answer, generation):
            self._position = max(self._position, id)
            if is_call(entry.envelope) and not self._partition.holds(entry):
                self._partition.take_early(entry)
        if self._again or (not isinstance(answer, BaseException) and len(answer) == _BATCH):
            self.look_for_calls()

    # -- other agents

    def relieve(self) -> None:
        """When a few agents hold all the credit, read some messages of others."""
        partition = self._partition
        if not partition.full or len(set(partition.in_memory())) > _FEW:
            return
        generation = partition.generation
        self._link.run(
            lambda scripts: scripts.read(partition.keys.inbox, after(partition.last), _FAR),
            lambda answer: self._take_others(answer, generation),
        )

    def _take_others(self, answer: BaseException | Sequence[InboxEntry], generation: int) -> None:
        held = Counter(map(str, self._partition.in_memory()))
        room = 2 * self._partition.credit - held.total()
        passed = {agent for agent, count in held.items() if count >= self._partition.credit / _FEW}
        for _, entry in self._valid(answer, generation):
            if self._partition.holds(entry):
                continue
            if entry.agent in passed or held[entry.agent] >= _SHARE or room <= 0:
                passed.add(entry.agent)  # what comes after for the same agent has to wait, too
            else:
                held[entry.agent] += 1
                room -= 1
                self._partition.take_early(entry)

    def _valid(
        self, answer: BaseException | Sequence[InboxEntry], generation: int
    ) -> Iterator[tuple[EntryId, InboxEntry]]:
        partition = self._partition
        if isinstance(answer, BaseException) or generation != partition.generation:
            return
        for entry in answer:
            if not partition.owned or partition.draining:
                return
            id = parse_entry_id(entry.entry_id)
            if id > partition.last:
                yield id, entry


def parse_entry_id(text: str) -> EntryId:
    """An entry id as numbers, which order as the server orders them."""
    time, _, number = text.partition("-")
    return int(time), int(number)


def after(id: EntryId) -> str:
    """Where a read of what comes after an entry starts."""
    return "-" if id == (0, 0) else f"({id[0]}-{id[1]}"


def may_be_call(envelope: bytes | None) -> bool:
    """False when the envelope is certainly not that of a call from a turn."""
    return envelope is None or b'"chain":' in envelope


def is_call(envelope: bytes) -> bool:
    """True for a call from a turn."""
    return bool(callers_of(envelope))


def callers_of(envelope: bytes) -> list[str]:
    """The ids of the turns from which a call descends, the oldest first; none for what is no call from a turn."""
    try:
        chain = unpack(envelope).chain if may_be_call(envelope) else ()
    except MessageError:
        return []  # it is read, and set aside, when it is its turn
    return [link.partition(".")[0] for link in chain]


def wants_answer(envelope: bytes) -> bool:
    """True for a call, from a turn or from outside."""
    try:
        return b'"reply":' in envelope and unpack(envelope).reply[:2] not in ("", "i|")
    except MessageError:
        return False
