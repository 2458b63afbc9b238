"""A partition of which no messages are run, for the tests of what it reads."""

from __future__ import annotations

from autogen_core import AgentId

from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.partition import Partition
from tests.support.servers import Server
from tests.support.waiting import eventually


class Reading:
    """A partition, and the turn ids of the messages it has handed on, in order."""

    def __init__(self, server: Server, link: Link, namespace: str, credit: int = 256) -> None:
        self.keys = PartitionKeys(namespace, "reader", 0)
        self.server = server.client()
        self.handed_on: list[str] = []
        self.forgotten: list[str] = []
        self.ended: list[str] = []
        self.partition = Partition(self.keys, "token", link, self.accept, lambda activation: None, credit=credit)

    def add(self, *turns: str, agent: str = "x", chain: str = "") -> None:
        head = '{"v":1,"id":"i","type":"T","kind":"send","to":"reader/x"'
        envelope = f'{head},"chain":["{chain}"],"data":1}}'
        for turn in turns:
            fields = {"m": turn, "a": f"reader/{agent}", "e": envelope if chain else "{}"}
            self.server.xadd(self.keys.inbox, fields)

    def consume(self, turn: str) -> None:
        """What is done with a message that was handed on."""
        (entry_id,) = (id for id, message in self.partition.pending.items() if message.turn_id == turn)
        self.server.xdel(self.keys.inbox, entry_id)
        self.partition.done(entry_id)

    def accept(self, partition: Partition, entry_id: str, turn_id: str, agent: str, envelope: bytes) -> Message:
        self.handed_on.append(turn_id)
        return Message(self, partition, entry_id, turn_id, agent)

    async def has_handed_on(self, *turns: str) -> None:
        await eventually(lambda: self.handed_on == list(turns), within=3)


class Message:
    """Not started until the test says so."""

    is_open = False
    held_turn: tuple[str, str] | None = None

    def __init__(self, reading: Reading, partition: Partition, entry_id: str, turn_id: str, agent: str) -> None:
        self.reading = reading
        self.partition = partition
        self.entry_id = entry_id
        self.turn_id = turn_id
        self.agent = AgentId.from_str(agent)

    def forget(self) -> None:
        self.reading.forgotten.append(self.turn_id)
        self.partition.pending.pop(self.entry_id, None)

    def forget_unless_started(self) -> None:
        if self.held_turn is None:
            self.forget()

    def end_early(self, why: str, wish: str = "") -> None:
        self.reading.ended.append(wish)
