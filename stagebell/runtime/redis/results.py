"""What the scripts answer, as values. Ids and tokens are str, payloads stay bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

CallStatus = Literal[
    "SENT", "PENDING", "REPLY", "FENCED", "GONE", "STALE", "CHANGED", "STALE_REGISTRY", "BADKEY", "BADARGS"
]
EndStatus = Literal["OK", "FENCED", "DUP", "STALE", "UNSEEN", "STALE_REGISTRY", "BADKEY", "BADARGS"]
RecordStatus = Literal["KEPT", "KNOWN", "FENCED", "DUP", "STALE", "BADKEY"]
RequeueStatus = Literal["OK", "GONE", "BADKEY"]
RetryStatus = Literal["OK", "FENCED", "DUP", "STALE", "BADKEY"]
SendStatus = Literal["OK", "STALE_REGISTRY", "BUSY", "BADKEY", "BADARGS"]
FanoutStatus = Literal["OK", "FENCED", "GONE", "STALE_REGISTRY", "BUSY", "BADKEY", "BADARGS"]


class Grant(NamedTuple):
    """The partition is ours: by this token, after that one; `held` agents still run at a former owner."""

    token: str
    epoch: int
    previous: str
    held: tuple[str, ...]


class Taken(NamedTuple):
    """The partition belongs to another worker, whose lease lasts that many milliseconds more."""

    owner: str
    remaining_ms: int


class SendReply(NamedTuple):
    """Outcome of a send: entry `ids`, one per destination, or why nothing was sent.

    `busy` is the index of the destination whose inbox is full and its length, `detail` the present version
    (STALE_REGISTRY) or the key of a wrong type (BADKEY).
    """

    status: SendStatus
    ids: tuple[str, ...] = ()
    busy: tuple[int, int] = (-1, 0)
    detail: str = ""


class CallReply(NamedTuple):
    """Where a call stands; `replies` and `savepoints` are what the turn must know from now on.

    `reply` with REPLY; `entry_id` of the request with SENT and PENDING; `detail` is the recorded digest
    (CHANGED), the present version (STALE_REGISTRY) or the key of a wrong type (BADKEY).
    """

    status: CallStatus
    replies: int = 0
    savepoints: int = 0
    reply: bytes = b""
    entry_id: str = ""
    detail: str = ""


class EndReply(NamedTuple):
    """Outcome of `commit` and `fail`: the state's version now in the store, where the script knows it.

    `detail` is the registry's present version (STALE_REGISTRY) or the key of a wrong type (BADKEY);
    `parent_savepoints`, of a nested turn that failed, is the parent's count of savepoints now.
    """

    status: EndStatus
    version: int = 0
    detail: str = ""
    parent_savepoints: int = 0


class RetryReply(NamedTuple):
    """Outcome of `retry`: how many attempts have failed; `detail` is the key of a wrong type (BADKEY)."""

    status: RetryStatus
    failures: int = 0
    detail: str = ""


class RecordReply(NamedTuple):
    """Outcome of a record: the `value` that was there already (KNOWN); `detail` is the key of a wrong type (BADKEY)."""

    status: RecordStatus
    value: str = ""
    detail: str = ""


class RequeueReply(NamedTuple):
    """Outcome of a requeue: `entry_id` of the message; `detail` is the key of a wrong type (BADKEY)."""

    status: RequeueStatus
    entry_id: str = ""
    detail: str = ""


class FanoutReply(NamedTuple):
    """Outcome of a fan-out; `detail` as in SendReply."""

    status: FanoutStatus
    detail: str = ""


class InboxEntry(NamedTuple):
    """One message in an inbox."""

    entry_id: str
    turn_id: str
    agent: str
    envelope: bytes


class OpenRecord(NamedTuple):
    """A call `k` that is open, by its turn's journal: the request's entry id, its turn id, and the tag of its inbox."""

    k: str
    entry_id: str
    turn_id: str
    tag: str


class EndWanted(NamedTuple):
    """A message that is to be ended: entry `id` of ctl, the message's turn id and entry id, and why."""

    id: str
    turn_id: str
    entry_id: str
    why: str


class Registered(NamedTuple):
    """The registry's version, whether this request changed it, and each field's value now ('' if none)."""

    version: int
    changed: bool
    values: tuple[str, ...]


class Claim(NamedTuple):
    """A process-bound type: `held` by this worker, or by `holder`; or the type is not process-bound.

    In the last case `other` is the value that stands in the registry.
    """

    held: bool
    version: int = 0
    holder: str = ""
    other: str = ""


def _text(value: bytes) -> str:
    return value.decode()


def read_acquire(raw: Sequence[Any]) -> Grant | Taken:
    """The answer of `acquire`."""
    if raw[0] == 0:
        return Taken(_text(raw[1]), raw[2])
    return Grant(_text(raw[1]), raw[2], _text(raw[3]), tuple(map(_text, raw[4:])))


def read_send(raw: Sequence[Any]) -> SendReply:
    """The answer of `send`."""
    status: Any = _text(raw[0])
    match status:
        case "OK":
            return SendReply(status, tuple(map(_text, raw[1:])))
        case "BUSY":
            return SendReply(status, busy=(raw[1] - 1, raw[2]))
        case _:
            return SendReply(status, detail=_text(raw[1]) if len(raw) > 1 else "")


def read_call(raw: Sequence[Any]) -> CallReply:
    """The answer of `call`."""
    status: Any = _text(raw[0])
    match status:
        case "SENT" | "PENDING":
            return CallReply(status, raw[1], raw[2], entry_id=_text(raw[3]))
        case "REPLY":
            return CallReply(status, raw[1], raw[2], reply=raw[3])
        case _:
            return CallReply(status, detail=_text(raw[1]) if len(raw) > 1 else "")


def read_end(raw: Sequence[Any]) -> EndReply:
    """The answer of `commit` and `fail`."""
    status: Any = _text(raw[0])
    if status in ("STALE_REGISTRY", "BADKEY"):
        return EndReply(status, detail=_text(raw[1]))
    return EndReply(status, int(raw[1]) if len(raw) > 1 else 0, parent_savepoints=raw[2] if len(raw) > 2 else 0)


def read_record(raw: Sequence[Any]) -> RecordReply:
    """The answer of `record`."""
    status: Any = _text(raw[0])
    if status == "KNOWN":
        return RecordReply(status, _text(raw[1]))
    return RecordReply(status, detail=_text(raw[1]) if len(raw) > 1 else "")


def read_recorded(raw: bytes | None) -> str | None:
    """A field that `record` has written: a nonce and the value."""
    return None if raw is None else _text(raw.partition(b" ")[2])


def read_retry(raw: Sequence[Any]) -> RetryReply:
    """The answer of `retry`."""
    status: Any = _text(raw[0])
    if status == "OK":
        return RetryReply(status, raw[1])
    return RetryReply(status, detail=_text(raw[1]) if len(raw) > 1 else "")


def read_requeue(raw: Sequence[Any]) -> RequeueReply:
    """The answer of `requeue` and `requeue_event`."""
    status: Any = _text(raw[0])
    if status == "OK":
        return RequeueReply(status, _text(raw[1]))
    return RequeueReply(status, detail=_text(raw[1]) if len(raw) > 1 else "")


def read_fanout(raw: Sequence[Any]) -> FanoutReply:
    """The answer of `fanout`."""
    status: Any = _text(raw[0])
    return FanoutReply(status, _text(raw[1]) if len(raw) > 1 else "")


def read_register(raw: Sequence[Any]) -> Registered:
    """The answer of `register`."""
    return Registered(raw[0], raw[1] == 1, tuple(map(_text, raw[2:])))


def read_claim(raw: Sequence[Any]) -> Claim:
    """The answer of `claim_type`."""
    match raw[0]:
        case 1:
            return Claim(True, version=raw[1])
        case 0:
            return Claim(False, holder=_text(raw[1]))
        case _:
            return Claim(False, other=_text(raw[1]))


def read_flag(raw: int) -> bool:
    """The answer of scripts that say 1 or 0."""
    return raw == 1


def read_inbox(raw: Sequence[Any]) -> list[InboxEntry]:
    """The answer of XRANGE on an inbox.

    Of an entry that a foreign hand wrote, a field that is missing or no text is taken as empty: without a turn id it
    can only be set aside.
    """
    entries: list[InboxEntry] = []
    for entry_id, flat in raw:
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        turn_id, agent = _text_or_empty(fields.get(b"m", b"")), _text_or_empty(fields.get(b"a", b""))
        entries.append(InboxEntry(_text(entry_id), turn_id, agent, fields.get(b"e", b"")))
    return entries


def read_ends(raw: Sequence[Any]) -> list[EndWanted]:
    """The answer of XRANGE on ctl; what a foreign hand left out is taken as empty."""
    found: list[EndWanted] = []
    for id, flat in raw:
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        found.append(EndWanted(_text(id), *(_text_or_empty(fields.get(name, b"")) for name in (b"m", b"i", b"w"))))
    return found


def read_is_answered(raw: bytes | None) -> bool:
    """A call's field of a journal: True when the reply is there."""
    return raw is not None and raw[:1] == b"R"


def read_open_calls(raw: Sequence[bytes]) -> list[OpenRecord]:
    """The answer of HGETALL on a journal; a call that a foreign hand wrote is left out."""
    found = (
        (_text_or_empty(k), _text_or_empty(value)[9:].split(" "))
        for k, value in zip(raw[::2], raw[1::2], strict=True)
        if value[:1] == b"S"
    )
    return [OpenRecord(k, *parts) for k, parts in found if len(parts) == 3]


def _text_or_empty(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""


def read_state(raw: Sequence[Any]) -> tuple[int, bytes]:
    """The answer of HMGET v d on an agent's state: version 0 and nothing when there is none."""
    return int(raw[0] or 0), raw[1] or b""


def read_fields(raw: Sequence[bytes]) -> dict[str, bytes]:
    """The answer of HGETALL on a hash that only we write."""
    return {_text(name): value for name, value in zip(raw[::2], raw[1::2], strict=True)}


def read_attempts(raw: Sequence[Any]) -> dict[str, int]:
    """The answer of HGETALL on the attempts of started turns; what a foreign hand wrote there is left out."""
    counts = [value.partition(b":")[0] for value in raw[1::2]]
    pairs = zip(raw[::2], counts, strict=True)
    return {_text_or_empty(turn_id): int(count) for turn_id, count in pairs if count.isdigit() and len(count) < 20}
