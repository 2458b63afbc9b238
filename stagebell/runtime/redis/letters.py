"""A dead letter as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stagebell.errors import MessageError
from stagebell.messages.codec import unpack

# What `fanout` and `fail` write before the fields of the entry itself.
_OF_EVENTS, _OF_MESSAGES = 3, 5


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was set aside.

    Attributes:
        id: where it lies and which it is there, such as `clerk:3/1716-0`.
        agent: whose message it was, as type/key; empty for an event from outside.
        message_type: wire name; empty when that cannot be read.
        message_id: id of the message; empty when that cannot be read.
        at_ms: when it was set aside, in milliseconds since the epoch.
        attempts: how often it was tried: handlers that raised and workers that died.
        reason: why, in one line.
        traceback: of the last error, if there was one.
        data: the message itself, encoded.
        fields: of the entry as it was in the inbox.
    """

    id: str
    agent: str
    message_type: str
    message_id: str
    at_ms: int
    attempts: int
    reason: str
    traceback: str
    data: bytes = field(repr=False)
    fields: Mapping[str, bytes] = field(repr=False)


def read_letter(place: str, entry_id: bytes, flat: Sequence[bytes]) -> DeadLetter:
    """The dead letter in an entry of a stream of them; never raises, whatever a foreign hand wrote."""
    own = 2 * (_OF_EVENTS if place == "events" else _OF_MESSAGES)
    told = _fields(flat[:own])
    fields = _fields(flat[own:])
    message_type, message_id, data = _event(fields) if place == "events" else _message(fields)
    return DeadLetter(
        id=f"{place}/{_text(entry_id)}",
        agent="" if place == "events" else _text(fields.get("a", b"")),
        message_type=message_type,
        message_id=message_id,
        at_ms=_number(told.get("at", b"")),
        attempts=_number(told.get("attempts", b"")),
        reason=_text(told.get("reason", b"")),
        traceback=_text(told.get("traceback", b"")),
        data=data,
        fields=fields,
    )


def _event(fields: Mapping[str, bytes]) -> tuple[str, str, bytes]:
    data = fields.get("data", fields.get("data_base64", b""))
    return _text(fields.get("type", b"")), _text(fields.get("id", b"")), data


def _message(fields: Mapping[str, bytes]) -> tuple[str, str, bytes]:
    try:
        envelope = unpack(fields.get("e", b""))
    except MessageError:
        return "", "", fields.get("e", b"")
    return envelope.type, envelope.id, envelope.data


def _fields(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=False)}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) < 20 else 0
