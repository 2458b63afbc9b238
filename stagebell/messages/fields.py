"""Reading the fields of a message that somebody else wrote: each returns a checked value or refuses."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, NoReturn

from autogen_core import JSON_DATA_CONTENT_TYPE
from pydantic_core import from_json

from stagebell.errors import MalformedMessage
from stagebell.messages.envelope import Kind, is_json
from stagebell.messages.reasons import explain, shorten

_TEXT = ("id", "type", "kind", "datacontenttype", "data_base64", "to", "from", "topic", "reply", "time")
_TYPES: dict[str, type] = {**dict.fromkeys(_TEXT, str), "traceparent": str, "chain": list, "deadline": int, "hops": int}
_WORDS = {str: "text", list: "a list of ids", int: "a whole number"}
_KINDS: dict[str, Kind] = {"send": "send", "publish": "publish", "reply": "reply", "failure": "failure"}
_LATEST_MS = 2**53  # whole numbers above it are not exact in every language
_is_agent = re.compile(r"[\w\-.]+/").match
_is_topic = re.compile(r"[\w\-.:=]+/").match

Fields = Mapping[str, Any]


def refuse(fields: Fields, reason: str) -> NoReturn:
    """Raise MalformedMessage with the type that the fields name, if they do."""
    name = fields.get("type")
    raise MalformedMessage(shorten(name, 80) if type(name) is str and name else "unknown", reason) from None


def check_types(fields: Fields) -> Fields:
    """Return the fields without those that are null, which means absent; refuse one of another JSON type."""
    for name, value in fields.items():
        if name in _TYPES and type(value) is not _TYPES[name]:
            if value is not None:
                refuse(fields, f"{name} must be {_WORDS[_TYPES[name]]}")
            return check_types({name: value for name, value in fields.items() if value is not None or name == "data"})
    return fields


def required(fields: Fields, name: str) -> str:
    """Return a text field that must be there and not empty."""
    value: str = fields.get(name, "")
    return value or refuse(fields, f"{name} is missing")


def content_type(fields: Fields) -> str:
    """Return the media type of the data; JSON by default."""
    return fields.get("datacontenttype") or JSON_DATA_CONTENT_TYPE


def kind(fields: Fields) -> Kind:
    """Return what sort of message it is."""
    value = required(fields, "kind")
    known = _KINDS.get(value)
    if known is None:
        refuse(fields, f"kind {shorten(value, 40)!r} is not one of {', '.join(_KINDS)}")
    return known


def chain(fields: Fields) -> tuple[str, ...]:
    """Return the ids of the calls from which it descends."""
    ids: list[Any] | None = fields.get("chain")
    if not ids:
        return ()
    for each in ids:
        if type(each) is not str:
            refuse(fields, "chain must be a list of ids")
    return tuple(ids)


def deadline(fields: Fields) -> int | None:
    """Return the deadline in milliseconds since the epoch."""
    ms: int | None = fields.get("deadline")
    if ms is not None and not 0 <= ms <= _LATEST_MS:
        refuse(fields, "deadline must be between 0 and 2**53 milliseconds since the epoch")
    return ms


def hops(fields: Fields) -> int | None:
    """Return how many further messages may follow."""
    left: int | None = fields.get("hops")
    if left is not None and left < 0:
        refuse(fields, "hops must not be negative")
    return left


def agent(fields: Fields, name: str) -> str:
    """Return an agent as ``type/key``; '' when absent."""
    value: str = fields.get(name, "")
    if value and not _is_agent(value):
        refuse(fields, f"{name} must be an agent, type/key, its type of letters, digits, _ - .")
    return value


def topic(fields: Fields) -> str:
    """Return the topic as ``type/source``; '' when absent."""
    value: str = fields.get("topic", "")
    if not value or _is_topic(value):
        return value
    shown = repr(shorten(value, 60))
    if "/" not in value:
        refuse(fields, f"topic {shown} has no '/': write it as type/source, for example orders/eu")
    refuse(fields, f"topic {shown}: the part before '/' must be one or more letters, digits or _ - . : =")


def base64_data(fields: Fields) -> bytes:
    """Return the data of ``data_base64``."""
    if "data" in fields:
        refuse(fields, "it has both data and data_base64")
    try:
        data = b64decode(fields["data_base64"], validate=True)
        if data and is_json(content_type(fields)):
            from_json(data)
    except ValueError as error:
        refuse(fields, f"data_base64: {explain(error)}")
    return data
