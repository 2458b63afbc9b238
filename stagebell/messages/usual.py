"""The usual envelope, read in one step: nothing in it is wrong, null or out of the ordinary.

What this does not read may still be an envelope: `codec.unpack` then reads it field by field, and says what is wrong
with it when it is none. It must never read what that refuses, or read it otherwise.
"""

from __future__ import annotations

from dataclasses import fields
from typing import cast

from autogen_core import JSON_DATA_CONTENT_TYPE
from pydantic_core import SchemaValidator
from pydantic_core import core_schema as schema
from pydantic_core.core_schema import CoreSchema, DataclassField

from stagebell.messages.envelope import VERSION, Envelope

_TEXT = schema.str_schema(strict=True)
_FILLED = schema.str_schema(strict=True, min_length=1)
_AGENT = schema.str_schema(strict=True, pattern=r"^[A-Za-z0-9_.\-]+/")
_TOPIC = schema.str_schema(strict=True, pattern=r"^[A-Za-z0-9_.:=\-]+/")
_NOTHING = schema.literal_schema([b""])  # which no JSON value is


def _field(
    name: str, values: CoreSchema, default: object = ..., names: list[list[str | int]] | None = None
) -> DataclassField:
    if default is not ...:
        values = schema.with_default_schema(values, default=default)
    return schema.dataclass_field(name, values, kw_only=True, validation_alias=names)


_FIELDS = [
    _field("v", schema.int_schema(strict=True, ge=VERSION, le=VERSION)),
    _field("id", _FILLED),
    _field("type", _FILLED),
    _field("kind", schema.literal_schema(["send", "publish", "reply", "failure"])),
    _field("data", _NOTHING, b"", [["data"], ["data_base64"]]),
    _field("datacontenttype", schema.literal_schema([JSON_DATA_CONTENT_TYPE]), JSON_DATA_CONTENT_TYPE),
    _field("to", _AGENT, ""),
    _field("sender", _AGENT, "", [["from"]]),
    _field("topic", _TOPIC, ""),
    _field("reply", _TEXT, ""),
    _field("chain", schema.tuple_variable_schema(_TEXT), ()),
    _field("deadline", schema.int_schema(strict=True, ge=0, le=2**53), None),
    _field("hops", schema.int_schema(strict=True, ge=0), None),
    _field("time", _TEXT, ""),
    _field("traceparent", _TEXT, ""),
]
_READER = SchemaValidator(
    schema.dataclass_schema(
        Envelope,
        schema.dataclass_args_schema("Envelope", _FIELDS, extra_behavior="ignore"),
        [each.name for each in fields(Envelope)],
        slots=True,
    )
)


def read_head(head: bytes) -> Envelope | None:
    """The envelope in a JSON object that has everything but the data; None when it is not a usual one."""
    try:
        envelope = cast(Envelope, _READER.validate_json(head))
    except ValueError:
        return None
    addressed = envelope.to if envelope.kind == "send" else envelope.topic if envelope.kind == "publish" else "-"
    return envelope if addressed else None
