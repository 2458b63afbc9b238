"""One message with its addresses, as it travels. `docs/wire-format.md` describes it for other languages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from autogen_core import JSON_DATA_CONTENT_TYPE

VERSION: Final = 1
"""The major version of the wire format that this package writes and reads."""

FAILURE_TYPE: Final = "stagebell.failure"
"""Wire name of the data of a failure, see `failure`."""

Kind = Literal["send", "publish", "reply", "failure"]


@dataclass(slots=True, kw_only=True)
class Envelope:
    """One message with its addresses. An empty string or tuple means: not given.

    Attributes:
        id: message id; of a reply and a failure, the id of the call that it answers.
        type: wire name of the data's type.
        kind: send (to one agent), publish (to a topic), reply, failure.
        data: the message itself, encoded; JSON text when `datacontenttype` is JSON.
        datacontenttype: media type of `data`.
        to: recipient as ``type/key``.
        sender: agent that sent it as ``type/key``; named ``from`` on the wire.
        topic: topic as ``type/source``.
        reply: where the answer goes; text that only the runtime that wrote it understands.
        chain: ids of the calls from which this message descends, the oldest first.
        deadline: milliseconds since the epoch after which nobody waits for the answer.
        hops: how many further messages, one leading to the next, may follow from it.
        time: when it was sent, RFC 3339, see `timestamp`.
        traceparent: W3C trace context.
        v: major version of the wire format.
    """

    id: str
    type: str
    kind: Kind
    data: bytes
    datacontenttype: str = JSON_DATA_CONTENT_TYPE
    to: str = ""
    sender: str = ""
    topic: str = ""
    reply: str = ""
    chain: tuple[str, ...] = ()
    deadline: int | None = None
    hops: int | None = None
    time: str = ""
    traceparent: str = ""
    v: int = VERSION


def timestamp(ms: int) -> str:
    """Return a time in milliseconds since the epoch as RFC 3339 text: ``2026-01-31T12:00:00.250Z``."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_json(content_type: str) -> bool:
    """Return whether a media type says JSON: ``application/json``, ``application/vnd.acme+json``, …."""
    if content_type == JSON_DATA_CONTENT_TYPE:
        return True
    essence = content_type.partition(";")[0].strip().lower()
    return essence.endswith(("/json", "+json"))
