"""`DeadLetters`: the messages of a namespace that were set aside, for operators and their programs.

A dead letter lies where its message was: in its partition, in the process that its agent was bound to, or beside the
stream of outside events. Its id says where: `clerk:3/1716-0`, `w:<worker>/1716-0`, `events/1716-0`. Nothing deletes one
but `requeue` and `discard`, which act in one step each: of two operators, one finds that it is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autogen_core import AgentId

from stagebell.errors import MalformedMessage, MessageError, RuntimeNotRunning, Undeliverable, UnknownDeadLetter
from stagebell.messages.codec import pack, unpack
from stagebell.messages.ids import turn_id
from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.client import find_server
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.embedded import EmbeddedServer
from stagebell.runtime.redis.keys import EventsKeys, LeasedKeys, ProcessKeys, check_name, leased_keys
from stagebell.runtime.redis.letters import DeadLetter, read_letter
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.membership import Membership
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import RequeueReply
from stagebell.runtime.redis.rights import OPERATOR_COMMANDS

_BATCH = 50
_SEEN_MS = 60_000
_EVENTS = "events"

# One of the methods below is called `list`.
Letters = list[DeadLetter]
Places = list[tuple[str, LeasedKeys]]


class DeadLetters:
    """The dead letters of a namespace. Use it as an async context manager; it needs no worker.

    Args:
        url: redis://, rediss:// or unix:// URL of the server; without one, the embedded server of the project folder.
        namespace: the namespace.
        folder: the project folder of the embedded server (default: `.stagebell` in the current directory).
    """

    def __init__(self, url: str | None = None, *, namespace: str = "default", folder: Path | None = None) -> None:
        if url is not None:
            Address.parse(url)
        self._url = url
        self._namespace = check_name(namespace)
        self._folder = folder
        self._events = EventsKeys(namespace)
        self._server: EmbeddedServer | None = None
        self._opened: tuple[Link, Directory] | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            ServerNotFound: no URL was given and there is no server program on this machine.
            ServerUnavailable: the server cannot be reached, or cannot write now.
            ServerRefused: it refused the credentials, or a command that is needed.
        """
        url, self._server = await find_server(self._url, self._folder)
        link = Link(url, self._namespace, "stagebell-dead-letters", OPERATOR_COMMANDS)
        directory = Directory(link, self._namespace, partitions=1)
        try:
            await link.open()
            await directory.refresh()
        except BaseException:
            await self._let_go(link)
            raise
        self._opened = link, directory
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await self._let_go(opened[0])

    async def _let_go(self, link: Link) -> None:
        await link.close()
        if self._server is not None:
            self._server.release()
            self._server = None

    async def list(self, *, type: str | None = None, limit: int | None = 100) -> Letters:
        """The newest dead letters, the newest first.

        Args:
            type: only those of agents of this type.
            limit: how many at most; None for all of them, which must fit into memory with their messages.
        """
        found: Letters = []
        for place, keys in await self._places(type):
            count = () if limit is None else ("COUNT", str(limit))
            entries = await self._link.ask("XREVRANGE", keys.dlq, "+", "-", *count)
            found += self._read(place, entries, type)
        found.sort(key=lambda letter: letter.at_ms, reverse=True)
        return found[:limit]

    async def walk(self, *, type: str | None = None) -> AsyncIterator[DeadLetter]:
        """All dead letters there are now, place by place, the oldest of each first; few at a time are in memory.

        Args:
            type: only those of agents of this type.
        """
        places = await self._places(type)
        # Those that come later are left out: a message that is requeued, and fails again, would never end.
        newest = [await self._link.ask("XREVRANGE", keys.dlq, "+", "-", "COUNT", "1") for _, keys in places]
        for (place, keys), last in zip(places, newest, strict=True):
            start, end = "-", last[0][0].decode() if last else "-"
            while entries := await self._link.ask("XRANGE", keys.dlq, start, end, "COUNT", str(_BATCH)):
                start = f"({entries[-1][0].decode()}"
                for letter in self._read(place, entries, type):
                    yield letter

    async def count(self, *, type: str | None = None) -> int:
        """How many there are, of all agents or of those of a type (without those bound to a process)."""
        places = [keys for place, keys in await self._places(type) if type is None or not place.startswith("w:")]
        return sum([await self._link.ask("XLEN", keys.dlq) for keys in places])

    async def get(self, id: str) -> DeadLetter:
        """One dead letter.

        Raises:
            UnknownDeadLetter: it is not there.
        """
        keys, entry_id = self._find(id)
        entries = await self._link.ask("XRANGE", keys.dlq, entry_id, entry_id)
        if not entries:
            raise UnknownDeadLetter(id)
        return read_letter(id.rpartition("/")[0], *entries[0])

    async def requeue(self, id: str) -> None:
        """Let the message be handled again: it goes to the end of its agent's messages, as one that was never tried.

        A call comes back as a message that nobody waits for, since its caller has had its answer. An event goes back
        into the stream of events, and from there to whoever subscribes to its topic now.

        Raises:
            UnknownDeadLetter: it is not there (any more).
            Undeliverable: no worker has ever hosted the agent's type, or the process that it was bound to has ended.
            MalformedMessage: it is no message, so no agent could handle it.
        """
        letter = await self.get(id)
        keys, entry_id = self._find(id)
        if keys == self._events:
            reply: RequeueReply = await self._link.submit(lambda scripts: scripts.requeue_event(keys, entry_id))
        else:
            await self._directory.refresh_if_changed()
            to = self._delivery(letter)
            reply = await self._link.submit(lambda scripts: scripts.requeue(keys, entry_id, to))
        if reply.status == "GONE":
            raise UnknownDeadLetter(id)
        if reply.status == "BADKEY":
            raise Undeliverable(letter.agent or _EVENTS, f"the key {reply.detail} has a type that none of us wrote")

    async def discard(self, id: str) -> None:
        """Delete a dead letter, and its message with it.

        Raises:
            UnknownDeadLetter: it is not there (any more).
        """
        keys, entry_id = self._find(id)
        if not await self._link.ask("XDEL", keys.dlq, entry_id):
            raise UnknownDeadLetter(id)

    @property
    def _link(self) -> Link:
        return self._parts[0]

    @property
    def _directory(self) -> Directory:
        return self._parts[1]

    @property
    def _parts(self) -> tuple[Link, Directory]:
        if self._opened is None:
            raise RuntimeNotRunning("the dead letters are not open: use `async with DeadLetters(…) as letters`")
        return self._opened

    def _read(self, place: str, entries: Sequence[Any], type: str | None) -> Letters:
        letters = [read_letter(place, id, flat) for id, flat in entries]
        return [letter for letter in letters if type is None or letter.agent.partition("/")[0] == type]

    def _delivery(self, letter: DeadLetter) -> Delivery:
        turn = letter.fields.get("m", b"").decode("utf-8", "replace")
        try:
            agent = AgentId.from_str(letter.agent)
        except ValueError as error:
            raise MalformedMessage(letter.message_type or "?", f"it names no agent: {error}") from None
        if not turn or "e" not in letter.fields:
            raise MalformedMessage(letter.message_type or "?", "it is no message: m, a or e is missing")
        place = self._directory.place(agent)
        if place is None:
            raise Undeliverable(agent, f"no worker hosts agent type {agent.type!r}")
        new_turn = turn_id(f"{turn}~{letter.id}", letter.agent)
        return Delivery(place, new_turn, letter.agent, _without_caller(letter.fields["e"]))

    async def _places(self, type: str | None) -> Places:
        """Where dead letters lie, without places that have none."""
        link, directory = self._link, self._directory
        await directory.refresh()
        places: Places = []
        for name, entry in sorted(directory.types.items()):
            if type in (None, name):
                numbers = range(0 if entry.worker else entry.partitions)
                places += [(f"{name}:{number}", directory.partition(name, number)) for number in numbers]
        places += [(f"w:{name}", ProcessKeys(self._namespace, name)) for name in await self._processes()]
        if type is None:
            places.append((_EVENTS, self._events))
        lengths = await asyncio.gather(*(link.ask("XLEN", keys.dlq) for _, keys in places))
        return [place for place, length in zip(places, lengths, strict=True) if length]

    async def _processes(self) -> Sequence[str]:
        """The live workers, and those that left dead letters when they ended."""
        membership = Membership(self._link, self._namespace, _SEEN_MS)
        await membership.refresh()
        ended = await self._link.ask("HGETALL", self._directory.keys.ended)
        live = {member.name for member in membership.members}
        left = [name.decode("utf-8", "replace") for name in ended[::2]]
        return sorted(live | {name for name in left if await self._has_letters(name)})

    async def _has_letters(self, ended: str) -> bool:
        """True when a process that has ended still has dead letters; else it is forgotten."""
        length = await self._link.ask("XLEN", ProcessKeys(self._namespace, ended).dlq)
        if not length:
            await self._link.ask("HDEL", self._directory.keys.ended, ended)
        return bool(length)

    def _find(self, id: str) -> tuple[LeasedKeys, str]:
        place, _, entry_id = id.rpartition("/")
        try:
            return self._events if place == _EVENTS else leased_keys(f"{self._namespace}:{place}"), _entry(entry_id)
        except ValueError:
            raise UnknownDeadLetter(id) from None


def _entry(text: str) -> str:
    time, _, number = text.partition("-")
    if not time.isdecimal() or not number.isdecimal():
        raise ValueError(text)
    return text


def _without_caller(raw: bytes) -> bytes:
    """The envelope for nobody who waits; as it is when there is no caller in it, or it cannot be read here."""
    try:
        envelope = unpack(raw)
    except MessageError:
        return raw
    if not (envelope.reply or envelope.chain or envelope.deadline is not None):
        return raw
    return pack(replace(envelope, reply="", chain=(), deadline=None))
