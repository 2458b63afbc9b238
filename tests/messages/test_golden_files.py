"""The golden files are the wire format: a change here breaks programs and messages that exist."""

from __future__ import annotations

import json

import pytest

from stagebell.messages import codec
from stagebell.messages.failure import restore
from tests.messages.golden import ENVELOPES, FOLDER, TRACEBACK, types
from tests.messages.messages_for_tests import OrderPlaced

pytestmark = pytest.mark.integration


def _bytes(name: str) -> bytes:
    return (FOLDER / f"{name}.json").read_bytes().rstrip(b"\n")


def test_every_file_is_tested() -> None:
    elsewhere = {
        "state": "tests/runtime/redis/test_state_versions.py",
        "conversation": "tests/agents/test_stored_state.py",
        "tool_schema": "tests/tools/test_schema.py",
    }
    assert {path.stem for path in FOLDER.glob("*.json")} == {*ENVELOPES, "event", *elsewhere}


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_is_read(name: str) -> None:
    assert codec.unpack(_bytes(name)) == ENVELOPES[name]


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_is_written_exactly(name: str) -> None:
    assert codec.pack(ENVELOPES[name]) == _bytes(name)


@pytest.mark.parametrize("name", ["send", "publish", "reply", "protobuf"])
def test_the_data_is_read_and_written_exactly(name: str) -> None:
    envelope = codec.unpack(_bytes(name))
    message = types.decode(envelope.type, envelope.datacontenttype, envelope.data)
    assert types.encode(message) == (envelope.type, envelope.datacontenttype, envelope.data)


def test_the_failure_is_restored() -> None:
    error = restore(codec.unpack(_bytes("failure")).data)
    assert type(error) is ValueError
    assert error.args == ("no such order: 7",)
    assert vars(error)["remote_traceback"] == TRACEBACK


def test_the_event_is_read() -> None:
    envelope = codec.read_event(json.loads(_bytes("event")), "1769860800250-0")
    assert (envelope.id, envelope.kind, envelope.topic) == ("1769860800250-0", "publish", "orders/eu/north")
    assert types.decode(envelope.type, envelope.datacontenttype, envelope.data) == OrderPlaced(
        order=7, customer="Zoë", items=["tea"]
    )
