"""`stagebell publish`: messages from a shell, each one entry of the stream of events.

No message class is needed here: the worker that owns the stream looks up the subscribers.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress

from autogen_core import TopicId

from stagebell.errors import MessageError, ServerError, ServerRefused
from stagebell.runtime.engine.subscriptions import Subscriptions
from stagebell.runtime.ops.console import USAGE, CommandFailed, failure_text, give, one_line, say
from stagebell.runtime.ops.lines import Cutter, EventMaker, Line, reason_of
from stagebell.runtime.ops.progress import Progress, make_progress
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.redis.client import find_server
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.directory import parse_subscription
from stagebell.runtime.redis.keys import EventsKeys, NamespaceKeys

_CHUNK = 256 * 1024
_AHEAD = 4
_NAMED = 20
"""Bad lines that are named; the others are only counted."""


def run_publish(settings: Settings, *, topic: str, type: str, data: str | None, id: str) -> int:
    """Publish one message, or the lines of standard input; returns the exit code.

    Raises:
        CommandFailed: nothing can be published, or the server went away.
        StagebellError: the server cannot be reached, or refuses.
    """
    _check_topic(topic)
    if not type:
        raise CommandFailed("the message type must not be empty", code=USAGE)
    if data is None and sys.stdin.isatty():
        raise CommandFailed("give the message as JSON, or - to type JSON lines", code=USAGE)
    publishing = _Publishing(EventMaker(topic, type, id), EventsKeys(settings.namespace).inbox)
    try:
        return asyncio.run(_publish(settings, publishing, None if data == "-" else data))
    except KeyboardInterrupt:
        say(f"interrupted: {publishing.summary()}")
        return 130
    except ServerError as error:
        raise CommandFailed(f"{failure_text(error)}; {publishing.summary()}") from error


def _check_topic(topic: str) -> None:
    try:
        TopicId.from_str(topic)
    except ValueError:
        rule = "type/source, such as orders/eu; the type has letters, digits or _ - . : ="
        raise CommandFailed(f"the topic {topic!r} must be {rule}", code=USAGE) from None


async def _publish(settings: Settings, publishing: _Publishing, data: str | None) -> int:
    url, server = await find_server(settings.redis, settings.folder)
    try:
        connection = await Connection.open(url, name="stagebell-publish")
        try:
            await _warn_of_names(connection, settings.namespace, publishing.make)
            if data is not None:
                return await publishing.one(connection, data)
            with make_progress(sys.stdin.fileno()) as progress:
                return await publishing.lines(connection, progress)
        finally:
            connection.close()
    finally:
        if server is not None:
            server.release()


async def _warn_of_names(connection: Connection, namespace: str, make: EventMaker) -> None:
    """A wrong type ends among the dead letters, a wrong topic nowhere: in neither place somebody may look."""
    with suppress(ServerRefused):  # who may only publish need not be able to read
        flat: list[bytes] = await connection.execute("HGETALL", NamespaceKeys(namespace).reg)
        fields = {name.decode("utf-8", "replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
        known = sorted(name[2:] for name in fields if name.startswith("m:"))
        if known and make.type not in known:
            say(f"no worker has announced the type {make.type!r} so far; known are {', '.join(known[:20])}")
        if known and not _is_heard(fields, make.topic):
            text = f"nobody subscribes to topic {make.topic!r} so far: a worker that finds it so lets the message go"
            say(f"{text}. Let agents subscribe (`add_subscription`, `type_subscription`), or look at its spelling")


def _is_heard(fields: Mapping[str, bytes], topic: str) -> bool:
    subscriptions = Subscriptions()
    for name, value in fields.items():
        with suppress(ValueError, RecursionError):
            if name.startswith("s:"):
                subscriptions.add(parse_subscription(value.decode()))
    return bool(subscriptions.recipients(TopicId.from_str(topic)))


class _Publishing:
    """Publishes, and counts what became of it."""

    def __init__(self, make: EventMaker, stream: str) -> None:
        self.make = make
        self._stream = stream
        self._published = 0
        self._bad = 0
        self._unknown: list[int] = []

    def summary(self) -> str:
        """What happened, for people."""
        text = f"published {_messages(self._published)}"
        if self._bad:
            text += f", left out {self._bad:,} bad line{'s' if self._bad > 1 else ''}"
        if self._unknown:
            first, last = self._unknown[0], self._unknown[-1]
            which = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
            text += f", {which} may or may not have arrived"
        return text

    async def one(self, connection: Connection, data: str) -> int:
        """Publish the message given as an argument."""
        try:
            fields = self.make.fields(data.encode("utf-8", "surrogateescape"))
        except MessageError as error:
            raise CommandFailed(f"the message is not published: {reason_of(error)}") from error
        await connection.execute("XADD", self._stream, "*", *fields)
        self._published = 1
        give(self.summary())
        return 0

    async def lines(self, connection: Connection, progress: Progress) -> int:
        """Publish each line of standard input; returns the exit code."""
        cutter = Cutter()
        async for chunk in _chunks(sys.stdin.fileno()):
            await self._send(connection, cutter.feed(chunk), progress)
            progress.advance(len(chunk), self._published, self._bad)
        await self._send(connection, cutter.end(), progress)
        progress.close()
        if not (self._published or self._bad):
            raise CommandFailed("nothing is published, since standard input is empty: give JSON lines, or the message")
        if self._bad > _NAMED:
            say(f"and {self._bad - _NAMED:,} more bad lines")
        give(self.summary())
        return 1 if self._bad else 0

    async def _send(self, connection: Connection, lines: Iterable[Line], progress: Progress) -> None:
        """Send all lines of a chunk, then wait for the answers: one round trip."""
        sent: list[tuple[int, asyncio.Future[bytes]]] = []
        for line in lines:
            try:
                fields = self.make.fields(line.data, line.number)
            except MessageError as error:
                self._bad += 1
                if self._bad <= _NAMED:
                    progress.say(f"line {line.number:,} is left out: {one_line(reason_of(error))}")
            else:
                sent.append((line.number, connection.execute("XADD", self._stream, "*", *fields)))
        self._unknown = [number for number, _ in sent]
        answers = await asyncio.gather(*(answer for _, answer in sent), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        self._published += len(answers) - len(failures)
        self._unknown = [n for (n, _), a in zip(sent, answers, strict=True) if isinstance(a, BaseException)]
        if failures:
            raise failures[0]


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """What standard input has, as soon as it has something; some chunks are read ahead.

    A daemon thread reads, so that a command that is interrupted does not wait for input.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)

    def read() -> None:
        chunk = b"x"
        with suppress(RuntimeError):  # the loop has ended
            while chunk:
                chunk = os.read(descriptor, _CHUNK)
                asyncio.run_coroutine_threadsafe(queue.put(chunk), loop).result()

    threading.Thread(target=read, name="stagebell-stdin", daemon=True).start()
    while chunk := await queue.get():
        yield chunk
