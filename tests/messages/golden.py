"""What the golden files say, as envelopes."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.wrappers_pb2 import StringValue

from stagebell.messages.envelope import FAILURE_TYPE, Envelope
from stagebell.messages.failure import describe
from stagebell.messages.registry import TypeRegistry
from tests.messages.messages_for_tests import OrderPlaced

FOLDER = Path(__file__).parents[1] / "golden"
TURN = "4701e7c428dbf32d470407bf"
TRACEBACK = "Traceback (most recent call last):\n  …\nValueError: no such order: 7\n"

types = TypeRegistry()
types.add_type(OrderPlaced)
types.add_type(StringValue)
_order = types.encode(OrderPlaced(order=7, customer="Zoë", items=["tea"]))
_text = types.encode(StringValue(value="tea"))

ENVELOPES = {
    "send": Envelope(
        id=f"{TURN}.0.0",
        type=_order.name,
        kind="send",
        data=_order.data,
        to="writer/alice",
        sender="editor/bob",
        reply=f"j|shop:editor:3|{TURN}|0.0",
        chain=(f"{TURN}.0.0",),
        deadline=1769860800250,
        hops=12,
        time="2026-01-31T12:00:00.250Z",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    "publish": Envelope(
        id="order-7-placed",
        type=_order.name,
        kind="publish",
        data=_order.data,
        topic="orders/eu/north",
    ),
    "reply": Envelope(id=f"{TURN}.0.0", type="null", kind="reply", data=b"null", sender="writer/alice"),
    "failure": Envelope(
        id=f"{TURN}.0.0",
        type=FAILURE_TYPE,
        kind="failure",
        data=describe(ValueError("no such order: 7"), TRACEBACK),
        sender="writer/alice",
    ),
    "protobuf": Envelope(
        id="order-7-text",
        type=_text.name,
        kind="send",
        data=_text.data,
        datacontenttype=_text.content_type,
        to="writer/alice",
    ),
}
