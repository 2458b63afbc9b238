"""Turns that go on here although their partition belongs to another worker by now, until each has ended.

    owned ──release──▶ held ──root commit──▶ free: the new owner's bell rings
                         │
                         └──the turn ended otherwise──▶ its hold is dropped

What holds at all times
    - The new owner leaves the agent alone. Whatever the turn has to do it does with the old token: its calls, what is
      called back into the agent while it waits for them, and its commit.
    - Bells ring at the new owner. So the journals of turns that wait are asked for replies here, the inbox is read for
      calls that descend from them, and `ctl` for the wish to end them; everything else is the new owner's.
    - Nobody else may start here in the meantime: the agent is barred for all but such calls.
"""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio import Future, Task
from collections.abc import Callable
from typing import NamedTuple

from autogen_core import AgentId

from stagebell.errors import MessageError, ServerError
from stagebell.messages.codec import unpack
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.redis.keys import leased_keys
from stagebell.runtime.redis.lookahead import parse_entry_id
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.requests import Turn
from stagebell.runtime.redis.results import InboxEntry
from stagebell.runtime.redis.scripts import Scripts
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.turns import DurableTurn

logger = logging.getLogger("stagebell")

_HELD = "its partition was released"
_SHORTEST, _LONGEST = 0.02, 0.25  # seconds between two looks
_PATIENCE = 0.1  # of the time that a call has been waiting, until it is looked for again
_BATCH = 256


class _Call(NamedTuple):
    """A message in the inbox that may descend from a call of a held turn."""

    entry: InboxEntry
    chain: tuple[str, ...]


class _Released:
    """A partition that was released, and how far its inbox was read since."""

    def __init__(self, partition: Partition, done_with: Callable[[Activation], None]) -> None:
        self.partition = partition
        self.done_with = done_with
        self.position = min(partition.open_turns, key=parse_entry_id)  # what descends from a turn comes after its input
        self.calls: dict[str, _Call] = {}

    def ask_next(self, scripts: Scripts) -> Future[list[InboxEntry]]:
        """The next messages of the inbox."""
        return scripts.read(self.partition.keys.inbox, f"({self.position}", _BATCH)


class AskedHold(NamedTuple):
    """The new owner asks whether the turns of a hold go on: tag, agent, the holder's token, the turns (with commas)."""

    tag: str
    agent: str
    token: str
    turns: str

    def pack(self) -> bytes:
        """As it travels in a bell."""
        return json.dumps(self).encode()

    @classmethod
    def unpack(cls, data: bytes) -> AskedHold:
        """What `pack` made."""
        return cls(*json.loads(data))


class HeldHere:
    """The held turns of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._released: list[_Released] = []
        self._task: Task[None] | None = None

    def add(self, partition: Partition, done_with: Callable[[Activation], None]) -> None:
        """This partition was released; `done_with` hears of each of its agents whose turns have ended."""
        for agent, _ in partition.open_turns.values():
            self._services.dispatcher.bar(self._activation(partition, agent), _HELD)
        if partition.open_turns:
            released = _Released(partition, done_with)
            partition.on_hold_over = lambda agent: self._over(released, agent)
            self._released.append(released)
            if self._task is None or self._task.done():
                self._task = self._services.dispatcher.spawn(self._look_for_ever())

    def asked(self, asked: AskedHold) -> None:
        """Give up holds of turns that have ended here: the server has lost that they did."""
        going_on = {
            turn_id
            for released in self._released
            if released.partition.keys.tag == asked.tag and released.partition.token == asked.token
            for _, turn_id in released.partition.open_turns.values()
        }
        for turn_id in asked.turns.split(","):
            if turn_id not in going_on:
                logger.warning("a hold of %s is dropped: the server lost that its turn had ended", asked.agent)
                self._drop(Turn(leased_keys(asked.tag), asked.token, asked.agent, "", turn_id))

    def _drop(self, turn: Turn) -> None:
        self._services.link.run(lambda scripts: scripts.drop_hold(turn), lambda outcome: None)  # or asked again

    async def finish(self, patience: float) -> None:
        """No turn is open any more: wait for the answers to the last commits, and give the other holds up."""
        end = asyncio.get_running_loop().time() + patience
        while any(r.partition.pending for r in self._released) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_SHORTEST / 4)
        for released in list(self._released):
            for message in list(released.partition.pending.values()):
                message.forget()
        if self._task is not None:
            self._task.cancel()

    def _over(self, released: _Released, agent: str) -> None:
        partition = released.partition
        activation = self._activation(partition, agent)
        for message in list(partition.pending.values()):
            if isinstance(message, DurableTurn) and message.fence.agent == agent:
                message.forget_unless_started()
        self._services.dispatcher.unbar(activation, _HELD)
        released.done_with(activation)
        if not partition.open_turns:
            self._released.remove(released)

    def _activation(self, partition: Partition, agent: str) -> Activation:
        """An agent that is held; its instance may have left memory while its commit still waits to leave."""
        type, _, key = agent.partition("/")
        found = partition.agents.get(key)
        if found is None:
            found = self._services.catalog.hosted(type).activation(AgentId(type, key))
            partition.agents[key] = found
        return found

    # -- what the bell does not tell here

    async def _look_for_ever(self) -> None:
        while self._released:
            await asyncio.sleep(self._pause())
            for released in list(self._released):
                try:
                    await self._look(released)
                except ServerError as error:
                    logger.debug("%s is not looked at now: %s", released.partition.keys.tag, error)

    def _waiting(self, released: _Released) -> list[DurableTurn]:
        messages = released.partition.pending.values()
        return [message for message in messages if isinstance(message, DurableTurn) and message.calling]

    def _pause(self) -> float:
        """Short while calls are young; one that has been waiting for long may wait a little longer."""
        now = asyncio.get_running_loop().time()
        turns = [turn for released in self._released for turn in self._waiting(released)]
        ages = [now - call.since for turn in turns for call in turn.calls.open.values()]
        return min(max(min(ages, default=0.0) * _PATIENCE, _SHORTEST), _LONGEST)

    async def _look(self, released: _Released) -> None:
        await released.partition.ends.look()
        waiting = self._waiting(released)
        if waiting:
            await asyncio.gather(*(turn.calls.poll(k) for turn in waiting for k in list(turn.calls.entry_ids)))
            await self._read(released)
            self._let_in(released)

    async def _read(self, released: _Released) -> None:
        """Read on, and keep what a held agent is asked."""
        held, more = {agent for agent, _ in released.partition.open_turns.values()}, True
        while more:
            entries = await self._services.link.submit(released.ask_next)
            for entry in entries:
                released.position = entry.entry_id
                if entry.agent in held and (chain := _chain(entry)):
                    released.calls[entry.entry_id] = _Call(entry, chain)
            more = len(entries) == _BATCH

    def _let_in(self, released: _Released) -> None:
        partition = released.partition
        for entry_id, (entry, chain) in list(released.calls.items()):
            activation = self._activation(partition, entry.agent)
            above = activation.top.receipt if activation.top is not None else None
            if isinstance(above, DurableTurn) and above.calls.awaits_one_of(chain) and activation.hosted.reentrant:
                del released.calls[entry_id]
                partition.take(entry_id, entry.turn_id, entry.agent, entry.envelope)


def agents_not_held(partition: Partition) -> list[Activation]:
    """The agents of a partition that was handed over of which no turn goes on."""
    held = {agent.partition("/")[2] for agent, _ in partition.open_turns.values()}
    return [activation for key, activation in list(partition.agents.items()) if key not in held]


def _chain(entry: InboxEntry) -> tuple[str, ...]:
    """The calls from which a call descends; none for what is no call."""
    try:
        envelope = unpack(entry.envelope)
    except MessageError:
        return ()
    return envelope.chain if envelope.kind == "send" else ()
