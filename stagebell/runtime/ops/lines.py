"""JSON lines cut out of a stream of bytes, and checked as the workers will check them; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stagebell.errors import MessageError
from stagebell.messages.codec import check_size, read_event

MAX_BYTES = 1024 * 1024
"""Largest message, as the workers take it by default."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input, counted from 1."""

    number: int
    data: bytes


class Cutter:
    """Cuts chunks into lines; lines of white space are counted and left out."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._number = 0

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """The lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._rest.append(part)
            yield from self._line()
        if rest:
            self._rest.append(rest)

    def end(self) -> Iterator[Line]:
        """The last line, if it has no line break."""
        if self._rest:
            yield from self._line()

    def _line(self) -> Iterator[Line]:
        data = b"".join(self._rest)
        self._rest.clear()
        self._number += 1
        if self._number == 1:
            data = data.removeprefix(_BOM)
        data = data.strip()
        if data:
            yield Line(self._number, data)


@dataclass(frozen=True, slots=True)
class EventMaker:
    """Makes the fields of an event out of JSON."""

    topic: str
    type: str
    id: str = ""

    def fields(self, data: bytes, number: int = 0) -> list[str | bytes]:
        """The fields of the stream entry.

        Args:
            data: the message as JSON.
            number: of its line; it becomes part of the id, if there is one.

        Raises:
            MessageError: a worker would refuse it.
        """
        event: dict[str, str | bytes] = {"type": self.type, "topic": self.topic, "data": data}
        if self.id:
            event["id"] = f"{self.id}-{number}" if number else self.id
        check_size(self.type, len(data), MAX_BYTES)
        read_event(event, "x")
        return [part for item in event.items() for part in item]


def reason_of(error: MessageError) -> str:
    """Why a line is bad, without the type that all lines share."""
    return getattr(error, "reason", "") or str(error)
