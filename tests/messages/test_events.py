"""The short form in which other systems publish: ``XADD … type T topic a/b data '{…}'``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagebell.errors import MalformedMessage
from stagebell.messages import codec

pytestmark = pytest.mark.unit

_EVENT: dict[str, str | bytes] = {"type": "OrderPlaced", "topic": "orders/eu", "data": '{"order": 7}'}


def test_three_fields_are_enough() -> None:
    envelope = codec.read_event(_EVENT, "e1")
    assert envelope.kind == "publish"
    assert (envelope.id, envelope.type, envelope.topic) == ("e1", "OrderPlaced", "orders/eu")
    assert envelope.data == b'{"order": 7}'


def test_the_sender_may_give_more() -> None:
    more = {"id": "mine", "time": "2026-01-31T12:00:00Z", "traceparent": "00-…", "source": "/shop", "x": "y"}
    envelope = codec.read_event(_EVENT | more, "e1")
    assert (envelope.id, envelope.time, envelope.traceparent) == ("mine", "2026-01-31T12:00:00Z", "00-…")


def test_bytes_are_taken_as_utf8() -> None:
    assert codec.read_event(_EVENT | {"data": '"Zoë"'.encode()}, "e1").data == '"Zoë"'.encode()


def test_other_media_types_are_text_or_base64() -> None:
    text = _EVENT | {"datacontenttype": "text/plain", "data": "tea"}
    assert codec.read_event(text, "e1").data == b"tea"
    binary = {"type": "T", "topic": "a/b", "datacontenttype": "application/x-protobuf", "data_base64": "CgA="}
    assert codec.read_event(binary, "e1").data == b"\n\x00"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": None}, "field 'type' is missing or empty, the event has: topic, data"),
        ({"topic": None}, "field 'topic' is missing"),
        ({"topic": ""}, "field 'topic' is missing or empty"),
        ({"data": None}, "field 'data' is missing"),
        ({"topic": "orders"}, "topic 'orders' has no '/': write it as type/source, for example orders/eu"),
        ({"topic": "my orders/eu"}, "the part before '/' must be"),
        ({"data": "{order: 7}"}, "field 'data' is not JSON"),
        ({"data": ""}, "field 'data' is not JSON"),
        ({"data": b"\xff"}, "field 'data' is not UTF-8"),
        ({"topic": "\udcff/eu"}, "field 'topic' is not UTF-8"),
        ({"data": None, "data_base64": "?"}, "data_base64"),
        ({"data_base64": "CgA="}, "both data and data_base64"),
    ],
)
def test_a_malformed_event_is_refused_with_a_reason_for_people(
    changes: dict[str, str | bytes | None], reason: str
) -> None:
    event = {name: value for name, value in (_EVENT | changes).items() if value is not None}
    with pytest.raises(MalformedMessage) as caught:
        codec.read_event(event, "e1")
    assert reason in caught.value.reason


@given(
    st.dictionaries(
        st.sampled_from(["id", "type", "topic", "data", "data_base64"]) | st.text(), st.text() | st.binary()
    )
)
def test_an_event_of_any_shape_is_read_or_refused(event: dict[str, str | bytes]) -> None:
    try:
        envelope = codec.read_event(event, "e1")
    except MalformedMessage:
        return
    assert codec.unpack(codec.pack(envelope)) == envelope


@given(st.text(), st.text(), st.text())
def test_a_well_formed_event_of_any_text_can_be_packed_or_is_refused(type_: str, source: str, data: str) -> None:
    try:
        envelope = codec.read_event(
            {"type": type_, "topic": f"t/{source}", "data": data, "datacontenttype": "text/plain"}, "e1"
        )
    except MalformedMessage:
        return
    assert codec.unpack(codec.pack(envelope)) == envelope
