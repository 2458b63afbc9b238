"""Envelope ↔ bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagebell.errors import MalformedMessage, MessageError, MessageTooLarge, UnknownVersion
from stagebell.messages import codec
from stagebell.messages.envelope import Envelope, Kind, is_json, timestamp
from stagebell.messages.usual import read_head

pytestmark = pytest.mark.unit

_text = st.text(st.characters(codec="utf-8"))
_some = _text.filter(bool)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner) | st.dictionaries(_text, inner),
    max_leaves=10,
)
_agents = st.builds("{}/{}".format, st.from_regex(r"[\w\-.]+", fullmatch=True), _text)
_topics = st.builds("{}/{}".format, st.from_regex(r"[\w\-.:=]+", fullmatch=True), _text)
_json_data = st.tuples(
    st.sampled_from(["application/json", "application/vnd.acme+json; charset=utf-8"]),
    st.builds(lambda value, indent: json.dumps(value, indent=indent).encode(), _json, st.none() | st.just(2)),
)
_other_data = st.tuples(st.sampled_from(["application/x-protobuf", "text/plain"]), st.binary())
_KINDS: list[Kind] = ["send", "publish", "reply", "failure"]
_MINIMAL: dict[str, Any] = {"v": 1, "id": "m", "type": "T", "kind": "send", "to": "a/b", "data": 1}


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    content_type, data = draw(_json_data | _other_data)
    kind: Kind = draw(st.sampled_from(_KINDS))
    return Envelope(
        id=draw(_some),
        type=draw(_some),
        kind=kind,
        data=data,
        datacontenttype=content_type,
        to=draw(_agents if kind == "send" else _agents | st.just("")),
        sender=draw(_agents | st.just("")),
        topic=draw(_topics if kind == "publish" else _topics | st.just("")),
        reply=draw(_text),
        chain=tuple(draw(st.lists(_text, max_size=3))),
        deadline=draw(st.none() | st.integers(0, 2**53)),
        hops=draw(st.none() | st.integers(0, 2**31)),
        time=draw(_text),
        traceparent=draw(_text),
    )


def _bytes(**changes: object) -> bytes:
    fields = _MINIMAL | {("from" if name == "sender" else name): value for name, value in changes.items()}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


@given(envelopes())
def test_an_envelope_comes_back_as_it_went(envelope: Envelope) -> None:
    raw = codec.pack(envelope)
    assert codec.unpack(raw) == envelope
    assert codec.unpack(raw.decode()) == envelope


@given(envelopes())
def test_an_envelope_is_one_json_object_with_the_data_in_it(envelope: Envelope) -> None:
    fields = json.loads(codec.pack(envelope))
    if is_json(envelope.datacontenttype):
        assert fields["data"] == json.loads(envelope.data)
    else:
        assert fields.get("data_base64", "") == b64encode(envelope.data).decode()
    assert "" not in fields.values()
    assert None not in [fields[name] for name in fields if name != "data"]


@given(st.permutations(list(_MINIMAL)), _json, _json)
def test_the_order_of_fields_unknown_ones_and_white_space_make_no_difference(
    order: list[str], data: object, unknown: object
) -> None:
    fields: dict[str, object] = {"extension": {"nested": 1, "data": unknown}} | _MINIMAL | {"data": data}
    shuffled = {name: fields[name] for name in ["extension", *order]}
    for raw in (
        json.dumps(shuffled),
        json.dumps(shuffled, separators=(",", ":")),
        json.dumps(shuffled, indent=1),
    ):
        envelope = codec.unpack(raw)
        assert json.loads(envelope.data) == data
        assert (envelope.id, envelope.type, envelope.kind, envelope.to) == ("m", "T", "send", "a/b")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"v":1,"id":"m","type":"T","kind":"send","to":"a/b","data":1,"to":"a/c"}',
        b'{"v":1,"id":"m","type":"T","kind":"send","data":{"x":[1,"data",{"y":1,"data":3}]},"to":"a/c"}',
        b'{"v":1,"id":"m","type":"T","kind":"send","to":"a/c","x":{"y":1,"data":2},"\\u0064ata":1}',
        b'{"v":1,"id":"m","type":"T","kind":"send","to":"a/c","data":5,"data":1}',
    ],
)
def test_the_cut_at_the_data_finds_what_a_full_parse_finds(raw: bytes) -> None:
    fields = json.loads(raw)
    envelope = codec.unpack(raw)
    assert json.loads(envelope.data) == fields["data"]
    assert envelope.to == fields["to"] == "a/c"


def test_numbers_keep_their_digits() -> None:
    data = b'{"price":1.10000000000000000000000001,"big":123456789012345678901234567890}'
    envelope = Envelope(id="m", type="T", kind="send", to="a/b", data=data)
    assert codec.unpack(codec.pack(envelope)).data == data


def test_absent_data_is_empty_and_null_means_absent() -> None:
    assert codec.unpack(_bytes(data=...)).data == b""
    assert codec.unpack(_bytes(data=None)).data == b"null"
    envelope = codec.unpack(_bytes(topic=None, chain=None, deadline=None, reply=None, data_base64=None))
    assert (envelope.topic, envelope.chain, envelope.deadline) == ("", (), None)


def test_data_of_another_media_type_may_be_text() -> None:
    assert codec.unpack(_bytes(datacontenttype="text/plain", data="tea")).data == b"tea"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"v": ...}, "v is missing"),
        ({"v": True}, "v must be"),
        ({"v": "1"}, "v must be"),
        ({"id": ...}, "id is missing"),
        ({"id": ""}, "id is missing"),
        ({"id": 7}, "id must be text"),
        ({"type": None}, "type is missing"),
        ({"kind": "ask"}, "kind 'ask' is not one of send, publish, reply, failure"),
        ({"to": ...}, "to is missing"),
        ({"to": "alice"}, "to must be an agent"),
        ({"to": "a b/c"}, "to must be an agent"),
        ({"sender": "/"}, "from must be an agent"),
        ({"kind": "publish"}, "topic is missing"),
        ({"kind": "publish", "topic": "orders"}, "topic 'orders' has no '/'"),
        ({"topic": "my orders/eu"}, "part before '/'"),
        ({"chain": "m1"}, "chain must be a list"),
        ({"chain": ["m1", 2]}, "chain must be a list"),
        ({"deadline": 1.5}, "deadline must be a whole number"),
        ({"deadline": True}, "deadline must be a whole number"),
        ({"deadline": -1}, "deadline must be between"),
        ({"hops": -1}, "hops must not be negative"),
        ({"hops": "3"}, "hops must be a whole number"),
        ({"deadline": 2**54}, "deadline must be between"),
        ({"data_base64": "AAAA"}, "both data and data_base64"),
        ({"data": ..., "data_base64": "no base64!"}, "data_base64"),
        ({"data": ..., "data_base64": b64encode(b"{").decode()}, "data_base64"),
        ({"data": 1, "datacontenttype": "text/plain"}, "data must be text"),
    ],
)
def test_a_malformed_envelope_is_refused_with_a_reason(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        codec.unpack(_bytes(**changes))
    assert reason in caught.value.reason


def test_another_version_is_its_own_error_whatever_else_it_holds() -> None:
    with pytest.raises(UnknownVersion) as caught:
        codec.unpack(b'{"v":2,"kind":["new"],"datacontenttype":5,"data":{}}')
    assert caught.value.version == 2
    assert "version 2" in str(caught.value)


_FRAGMENTS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b',"data":',
    b'"v":1',
    b"1",
    b"null",
    b"\\",
    b"\xff",
    b" ",
]


@given(st.binary() | st.lists(st.sampled_from(_FRAGMENTS)).map(b"".join) | _json.map(lambda v: json.dumps(v).encode()))
def test_unpack_raises_nothing_but_message_errors(raw: bytes) -> None:
    _unpack_or_refuse(raw)


@given(envelopes(), st.integers(0), st.integers(0, 255), st.integers(0, 3))
def test_a_damaged_envelope_raises_nothing_but_message_errors(
    envelope: Envelope, at: int, byte: int, length: int
) -> None:
    raw = codec.pack(envelope)
    at %= len(raw)
    _unpack_or_refuse(raw[:at] + bytes([byte]) + raw[at + length :])


@given(st.dictionaries(st.sampled_from([*_MINIMAL, "from", "topic", "chain", "deadline", "data_base64"]), _json))
def test_fields_of_any_shape_raise_nothing_but_message_errors(changes: dict[str, object]) -> None:
    _unpack_or_refuse(json.dumps(_MINIMAL | changes).encode())


@given(
    st.fixed_dictionaries({}, optional={name: _json | st.just(value) for name, value in _MINIMAL.items()})
    | envelopes().map(codec.pack).map(lambda raw: {**json.loads(raw), "data": 1}),
    st.dictionaries(
        st.sampled_from([*_MINIMAL, "from", "topic", "chain", "deadline", "hops", "time"]), _json, max_size=1
    ),
)
def test_what_is_read_in_one_step_is_read_field_by_field_as_well(
    fields: dict[str, object], changes: dict[str, object]
) -> None:
    head = {name: value for name, value in {**fields, **changes}.items() if name != "data"}
    raw = json.dumps(head).encode()
    quick = read_head(raw)
    if quick is not None:
        quick.data = b"1"
        assert quick == codec.unpack(json.dumps({"data": 1, **head}).encode())  # where the data is not the last


@given(st.text())
def test_text_of_any_kind_raises_nothing_but_message_errors(raw: str) -> None:
    _unpack_or_refuse(raw)
    _unpack_or_refuse('{"v":1,"id":"' + raw + '","data":1}')


def _unpack_or_refuse(raw: bytes | str) -> None:
    try:
        envelope = codec.unpack(raw)
    except MessageError as error:
        reason = str(error)
    else:
        reason = ""
        assert codec.unpack(codec.pack(envelope)) == envelope
    assert len(reason) < 600


def test_text_that_utf8_cannot_write_is_refused_by_the_writer() -> None:
    with pytest.raises(MalformedMessage):
        codec.pack(Envelope(id="\ud800", type="T", kind="send", to="a/b", data=b"1"))


def test_a_message_over_the_limit_says_its_size() -> None:
    codec.check_size("T", 10, 10)
    with pytest.raises(MessageTooLarge) as caught:
        codec.check_size("T", 2_000_000, 1_048_576)
    assert "2,000,000" in str(caught.value)


def test_a_timestamp_is_rfc_3339() -> None:
    assert timestamp(1769860800250) == "2026-01-31T12:00:00.250Z"
    assert timestamp(0) == "1970-01-01T00:00:00.000Z"
