"""A reply may be None, a scalar or anything pydantic can describe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from autogen_core import JSON_DATA_CONTENT_TYPE
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from stagebell.errors import MalformedMessage, TypeConflict, UnregisteredType
from stagebell.messages.registry import TypeRegistry
from tests.messages.messages_for_tests import Greeting, OrderPlaced

pytestmark = pytest.mark.unit

_ORDER = OrderPlaced(order=7, customer="Zoë")


class Colour(Enum):
    """A reply that is one of a few."""

    RED = "red"


class Point(TypedDict):
    """A reply that is a dict of a known form."""

    x: int
    at: datetime


OrderNumber = NewType("OrderNumber", int)


@dataclass
class Measurement:
    """A dataclass that AutoGen's serializer would refuse: nested, with a union, bytes and NaN."""

    greeting: Greeting
    order: OrderPlaced | None = None
    value: float = math.inf
    raw: bytes = b"\xff\x00"
    tags: dict[str, list[int]] = field(default_factory=dict)


@dataclass(init=False)
class Handmade:
    """A dataclass whose __init__ is written by hand."""

    text: str

    def __init__(self, text: str) -> None:
        self.text = text.upper()


def _round_trip(annotation: Any, value: object) -> Any:
    types = TypeRegistry()
    types.add_type(annotation)
    return types.decode(*types.encode(value))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


@given(_json)
def test_plain_json_needs_no_registration(value: object) -> None:
    types = TypeRegistry()
    encoded = types.encode(value)
    names = {
        type(None): "null",
        bool: "bool",
        int: "int",
        float: "float",
        str: "str",
        list: "list",
        dict: "dict",
    }
    assert encoded.name == types.name_of(value) == names[type(value)]
    decoded = types.decode(*encoded)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("int", b'"1"'),
        ("int", b"true"),
        ("int", b"1.5"),
        ("bool", b"1"),
        ("str", b"1"),
        ("null", b"0"),
        ("list", b"{}"),
    ],
)
def test_plain_json_of_another_type_is_malformed(name: str, data: bytes) -> None:
    with pytest.raises(MalformedMessage, match=f"not a JSON {name}"):
        TypeRegistry().decode(name, JSON_DATA_CONTENT_TYPE, data)


def test_a_float_may_be_written_without_a_point() -> None:
    assert type(TypeRegistry().decode("float", JSON_DATA_CONTENT_TYPE, b"1")) is float


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, datetime(2026, 1, 31, tzinfo=UTC)),
        (UUID, UUID(int=7)),
        (bytes, b"\xff\x00"),
        (Colour, Colour.RED),
        (tuple[int, OrderPlaced], (1, _ORDER)),
        (set[str], {"a", "b"}),
        (list[OrderPlaced], [_ORDER, _ORDER]),
        (list[OrderPlaced], []),
        (dict[int, Greeting], {1: Greeting("hi")}),
        (dict[str, list[OrderPlaced | None]], {"a": [_ORDER, None]}),
        (Sequence[Greeting], [Greeting("hi")]),
        (Point, {"x": 1, "at": datetime(2026, 1, 31, tzinfo=UTC)}),
        (OrderPlaced | None, None),
        (Annotated[OrderPlaced, Field(title="order")], _ORDER),
        (OrderNumber, 7),
        (Literal["yes", "no"], "yes"),
        (Measurement, Measurement(Greeting("hi"), _ORDER, tags={"a": [1]})),
    ],
)
def test_what_pydantic_describes_comes_back_as_it_went(annotation: Any, value: object) -> None:
    decoded = _round_trip(annotation, value)
    assert decoded == value
    assert type(decoded) is type(value)


def test_nan_comes_back_from_a_dataclass() -> None:
    assert math.isnan(_round_trip(Measurement, Measurement(Greeting("hi"), value=math.nan)).value)


def test_an_init_written_by_hand_runs() -> None:
    assert _round_trip(Handmade, Handmade("hi")).text == "HI"


def test_a_list_of_models_without_its_annotation_is_read_as_plain_json() -> None:
    types = TypeRegistry()
    assert types.decode(*types.encode([_ORDER])) == [_ORDER.model_dump()]


def test_a_list_travels_under_the_annotation_it_fits() -> None:
    types = TypeRegistry()
    types.add_type(list[OrderPlaced])
    types.add_type(list[Greeting])
    assert types.name_of([_ORDER]) == "list[OrderPlaced]"
    assert types.name_of([Greeting("hi")]) == "list[Greeting]"
    assert types.name_of([1]) == types.name_of([_ORDER, 1]) == "list"
    assert types.name_of(_ORDER) == "OrderPlaced"


def test_a_conflict_inside_a_list_names_the_two_classes() -> None:
    class OrderPlaced(BaseModel):
        order: int

    types = TypeRegistry()
    types.add_type(list[_ORDER.__class__])
    with pytest.raises(TypeConflict) as caught:
        types.add_type(list[OrderPlaced])
    assert caught.value.second is OrderPlaced


def test_any_registers_nothing() -> None:
    types = TypeRegistry()
    before = list(types.names())
    types.add_type(Any)
    types.add_type(object)
    types.add_type(int | None)
    types.add_type(BaseModel, "Base")
    assert list(types.names()) == [*before, "Base"]


def test_what_nobody_can_write_is_refused_when_it_is_registered() -> None:
    class Opaque:
        pass

    types = TypeRegistry()
    for annotation in (Opaque, list[Opaque]):
        with pytest.raises(UnregisteredType):
            types.add_type(annotation)
    with pytest.raises(UnregisteredType):
        types.encode(Opaque())
