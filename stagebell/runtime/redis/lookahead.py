"""What lies beyond the credit of a partition and must not wait until what lies before it is done.

A partition holds `credit` messages in memory. When these all wait, what they wait for may lie behind them in the inbox:
    - A call from a turn. Somebody's turn is open until it is answered, perhaps that of the agent for which all that is
      in memory waits (A calls B, and B calls A). Such calls are always read: they are not many more than open turns.
    - A message for an agent that could take it at once, while those in memory are all for agents that cannot (a turn of
      theirs is open, here or at a former owner, or a head waits), or for a few slow ones. What these wait for may be
      what that message leads to: a reply that comes later. Some are read, again and again.
Both keep the order of the messages of each agent, except that a call may pass what is no call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Protocol

from autogen_core import AgentId

from stagebell.errors import MessageError
from stagebell.messages.codec import unpack
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.results import InboxEntry

EntryId = tuple[int, int]

_BATCH = 256
_FAR = 1024  # so many entries are searched at a time for messages of other agents
_FEW = 8  # so many agents are few
_SHARE = 8  # messages of one agent that are read beyond the credit


class Message(Protocol):
    """A message in memory."""

    agent: AgentId

    @property
    def is_open(self) -> bool:
        """True when its turn is open."""
        ...


class Looked(Protocol):
    """The partition, as far as it matters here."""

    keys: LeasedKeys
    owned: bool
    draining: bool
    last: EntryId
    generation: int
    credit: int
    held: set[str]

    @property
    def holding(self) -> Container[str]:
        """The agents of which messages are held back in the inbox."""
        ...

    @property
    def full(self) -> bool:
        """True when the credit is used up."""
        ...

    @property
    def pending(self) -> Mapping[str, Message]:
        """What is in memory."""
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
        self._near: EntryId = (0, 0)  # what `last` was when the search for messages of other agents began
        self._far: EntryId = (0, 0)  # up to here it has come
        self._passed: set[str] = set()  # agents of which it has left something behind

    def start_over(self) -> None:
        """Everything is read anew."""
        self._position = self._far = (0, 0)

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
        """When nothing in memory could start, or a few agents hold all the credit, read some messages of others."""
        partition = self._partition
        waiting = Counter(str(message.agent) for message in partition.pending.values())
        blocked = {agent for agent in waiting if agent in partition.holding or agent in partition.held}
        blocked |= {str(message.agent) for message in partition.pending.values() if message.is_open}
        few = len(waiting) <= _FEW
        if not partition.full or not (few or blocked == waiting.keys()):
            return
        if self._near != partition.last or self._far <= partition.last:
            self._near = self._far = partition.last
            self._passed = set()
        self._passed |= {agent for agent, count in waiting.items() if not few or count >= partition.credit / _FEW}
        room = 2 * partition.credit - sum(count for agent, count in waiting.items() if agent not in blocked)
        generation = partition.generation
        self._link.run(
            lambda scripts: scripts.read(partition.keys.inbox, after(self._far), _FAR),
            lambda answer: self._take_others(answer, generation, room, _SHARE if few else 1),
        )

    def _take_others(
        self, answer: BaseException | Sequence[InboxEntry], generation: int, room: int, share: int
    ) -> None:
        held = Counter(str(message.agent) for message in self._partition.pending.values())
        room_before = room
        for id, entry in self._valid(answer, generation):
            self._far = id
            if self._partition.holds(entry):
                continue
            if is_call(entry.envelope):  # missed by `look_for_calls`: the server went back and gave its id again
                self._partition.take_early(entry)
            elif entry.agent in self._passed or held[entry.agent] >= share or room <= 0:
                self._passed.add(entry.agent)  # what comes after for the same agent has to wait, too
            else:
                held[entry.agent] += 1
                room -= 1
                self._partition.take_early(entry)
        if isinstance(answer, BaseException) or len(answer) < _FAR or room < room_before:
            self._far = (0, 0)  # from the beginning next time: those that are done by then may have more

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
