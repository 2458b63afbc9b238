"""Envelope ↔ bytes, and the short form in which other systems publish.

An envelope is one JSON object in UTF-8. JSON data is embedded as it is, as the last member, so that a writer
copies it and a reader can cut it out again; other data travels as ``data_base64``. Fields without a value are
left out, and unknown fields are ignored.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from autogen_core import JSON_DATA_CONTENT_TYPE
from pydantic_core import from_json, to_json

from stagebell.errors import MalformedMessage, MessageTooLarge, UnknownVersion
from stagebell.messages import fields as read
from stagebell.messages.envelope import VERSION, Envelope, is_json
from stagebell.messages.reasons import explain, shorten
from stagebell.messages.usual import read_head

_DATA = b',"data":'


def pack(envelope: Envelope) -> bytes:
    """Return the bytes of an envelope.

    JSON data is copied without a look inside: it must come from a `TypeRegistry`, `read_event` or `unpack`.

    Raises:
        MalformedMessage: a field holds text that UTF-8 cannot write.
    """
    embedded = is_json(envelope.datacontenttype)
    head = _head(envelope)
    if envelope.data and not embedded:
        head["data_base64"] = b64encode(envelope.data).decode("ascii")
    try:
        raw = to_json(head)
    except ValueError as error:
        raise MalformedMessage(shorten(ascii(envelope.type)), explain(error)) from None
    return b"%b%b%b}" % (raw[:-1], _DATA, envelope.data) if envelope.data and embedded else raw


def _head(envelope: Envelope) -> dict[str, object]:
    """Every field but the data, those without a value left out."""
    head: dict[str, object] = {
        "v": envelope.v,
        "id": envelope.id,
        "type": envelope.type,
        "kind": envelope.kind,
    }
    if envelope.to:
        head["to"] = envelope.to
    if envelope.sender:
        head["from"] = envelope.sender
    if envelope.topic:
        head["topic"] = envelope.topic
    if envelope.reply:
        head["reply"] = envelope.reply
    if envelope.chain:
        head["chain"] = envelope.chain
    if envelope.deadline is not None or envelope.hops is not None:
        head.update(_limits(envelope))
    if envelope.time:
        head["time"] = envelope.time
    if envelope.traceparent:
        head["traceparent"] = envelope.traceparent
    if envelope.datacontenttype != JSON_DATA_CONTENT_TYPE:
        head["datacontenttype"] = envelope.datacontenttype
    return head


def _limits(envelope: Envelope) -> dict[str, int]:
    limits = {"deadline": envelope.deadline, "hops": envelope.hops}
    return {name: limit for name, limit in limits.items() if limit is not None}


def unpack(raw: bytes | str) -> Envelope:
    """Return the envelope in `raw`.

    Raises:
        UnknownVersion: another major version wrote it.
        MalformedMessage: it is no envelope.
    """
    raw = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    at = raw.find(_DATA)
    if at > 0 and raw.endswith(b"}"):
        envelope = read_head(raw[:at] + b"}")
        if envelope is not None and _is_value(data := raw[at + len(_DATA) : -1]):
            envelope.data = data
            return envelope
    return _unpack_carefully(raw)


def _is_value(data: bytes) -> bool:
    try:
        from_json(data)
    except ValueError:
        return False
    return True


def _unpack_carefully(raw: bytes) -> Envelope:
    """Field by field."""
    fields, data = _split(raw)
    _check_version(fields.get("v"))
    fields = read.check_types(fields)
    envelope = Envelope(
        id=read.required(fields, "id"),
        type=read.required(fields, "type"),
        kind=read.kind(fields),
        data=_data(fields) if data is None else data,
        datacontenttype=read.content_type(fields),
        to=read.agent(fields, "to"),
        sender=read.agent(fields, "from"),
        topic=read.topic(fields),
        reply=fields.get("reply", ""),
        chain=read.chain(fields),
        deadline=read.deadline(fields),
        hops=read.hops(fields),
        time=fields.get("time", ""),
        traceparent=fields.get("traceparent", ""),
    )
    if envelope.kind == "send" and not envelope.to:
        read.refuse(fields, "to is missing")
    if envelope.kind == "publish" and not envelope.topic:
        read.refuse(fields, "topic is missing")
    return envelope


def _split(raw: bytes) -> tuple[read.Fields, bytes | None]:
    """Return the fields, and the bytes of the data where they could be cut out of `raw` as they stand.

    The cut is safe. The part before it is an object once closed, so the cut is at the top level and outside
    of text; it has no ``data`` of its own; and the part after it is one value, so nothing follows the data.
    Together that is what a full parse would find. Cutting keeps numbers as they were written and spares a
    second encoding.
    """
    at = raw.find(_DATA)
    if at > 0 and raw.endswith(b"}"):
        data = raw[at + len(_DATA) : -1]
        try:
            head = from_json(raw[:at] + b"}")
            from_json(data)
        except ValueError:
            pass  # the data is not last, or stands deeper: read the whole
        else:
            if "data" not in head and "data_base64" not in head and _says_json(head):
                return head, data
    return _parse(raw), None


def _says_json(head: read.Fields) -> bool:
    # Before the version is checked nothing is known of the other fields, so this must not refuse.
    content_type = head.get("datacontenttype", JSON_DATA_CONTENT_TYPE)
    return type(content_type) is str and is_json(content_type)


def _parse(raw: bytes) -> read.Fields:
    try:
        fields = from_json(raw)
    except ValueError as error:
        read.refuse({}, f"it is not JSON: {explain(error)}")
    if type(fields) is not dict:
        read.refuse({}, "it is not a JSON object")
    return cast(dict[str, Any], fields)


def _check_version(version: object) -> None:
    if type(version) is not int:
        read.refuse({}, "v is missing" if version is None else "v must be a whole number")
    if version != VERSION:
        raise UnknownVersion(version)


def _data(fields: read.Fields) -> bytes:
    if "data_base64" in fields:
        return read.base64_data(fields)
    if "data" not in fields:
        return b""
    data = fields["data"]
    if is_json(read.content_type(fields)):
        return to_json(data)
    if type(data) is not str:
        read.refuse(fields, "data must be text, or data_base64, for a media type that is not JSON")
    return data.encode()


def check_size(name: str, size: int, limit: int) -> None:
    """Check a message's size.

    Args:
        name: wire name of its type.
        size: its size in bytes.
        limit: the largest size allowed, in bytes.

    Raises:
        MessageTooLarge: `size` is above `limit`.
    """
    if size > limit:
        raise MessageTooLarge(name, size, limit)


def read_event(fields: Mapping[str, str | bytes], default_id: str) -> Envelope:
    """Return the envelope of an event that another system added with ``XADD … type T topic a/b data '{…}'``.

    Args:
        fields: those of the stream entry: ``type``, ``topic`` and ``data`` (or ``data_base64``); optional
            are ``id``, ``time``, ``datacontenttype`` (default JSON) and ``traceparent``. Others are ignored.
        default_id: message id when the event has none. Derive it from the entry's id, so that reading the
            entry again gives the same message.

    Raises:
        MalformedMessage: with a reason for the person who sent it.
    """
    event = _event_texts(fields)
    for name in ("type", "topic"):
        if not event.get(name):
            _refuse_incomplete(event, name)
    return Envelope(
        id=event.get("id") or default_id,
        type=event["type"],
        kind="publish",
        data=_event_data(event),
        datacontenttype=read.content_type(event),
        topic=read.topic(event),
        time=event.get("time", ""),
        traceparent=event.get("traceparent", ""),
    )


def _event_texts(fields: Mapping[str, str | bytes]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in fields.items():
        try:
            # a str is encoded to find the surrogates that a lenient decoder may have left in it
            texts[name] = (value.encode() if isinstance(value, str) else value).decode()
        except ValueError:
            read.refuse(texts, f"field {ascii(name)[:40]} is not UTF-8: send bytes as data_base64")
    return texts


def _event_data(event: dict[str, str]) -> bytes:
    if "data_base64" in event:
        return read.base64_data(event)
    if "data" not in event:
        _refuse_incomplete(event, "data")
    data = event["data"].encode()
    if is_json(read.content_type(event)):
        try:
            from_json(data)
        except ValueError as error:
            read.refuse(event, f"field 'data' is not JSON: {explain(error)}")
    return data


def _refuse_incomplete(event: dict[str, str], name: str) -> NoReturn:
    present = shorten(", ".join(event), 80) or "no fields"
    read.refuse(event, f"field {name!r} is missing or empty, the event has: {present}")
