"""Message class ↔ wire name ↔ bytes: what may be registered, under which name, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from autogen_core import (
    JSON_DATA_CONTENT_TYPE,
    PROTOBUF_DATA_CONTENT_TYPE,
    MessageSerializer,
    try_get_known_serializers_for_type,
)
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from pydantic import BaseModel, RootModel

from stagebell.errors import MalformedMessage, TypeConflict, UnregisteredType
from stagebell.messages.registry import Encoded, TypeRegistry
from tests.messages.messages_for_tests import Greeting, OrderPlaced

pytestmark = pytest.mark.unit

_ORDER = OrderPlaced(order=7, customer="Zoë", items=["tea"])


@pytest.fixture
def types() -> TypeRegistry:
    registry = TypeRegistry()
    for cls in (OrderPlaced, Greeting, StringValue):
        registry.add(try_get_known_serializers_for_type(cls))
    return registry


def _other_order_placed() -> type[BaseModel]:
    class OrderPlaced(BaseModel):
        order: int

    return OrderPlaced


class Thing:
    """A class that neither pydantic nor AutoGen can write."""

    def __init__(self, text: str) -> None:
        self.text = text


class ThingSerializer:
    """A custom serializer that does not say its class."""

    type_name = "Thing"
    data_content_type = "text/x-thing"

    def serialize(self, message: Any) -> bytes:
        return message.text.encode()

    def deserialize(self, payload: bytes) -> Any:
        return Thing(payload.decode())


class NamedThingSerializer(ThingSerializer):
    """A custom serializer that says its class by a return type, and calls it by another name."""

    type_name = "acme.thing"

    def deserialize(self, payload: bytes) -> Thing:
        return Thing(payload.decode())


class TerseOrderSerializer(MessageSerializer[OrderPlaced]):
    """A custom serializer in place of the standard one."""

    cls = OrderPlaced
    type_name = "OrderPlaced"
    data_content_type = JSON_DATA_CONTENT_TYPE

    def serialize(self, message: OrderPlaced) -> bytes:
        return str(message.order).encode()

    def deserialize(self, payload: bytes) -> OrderPlaced:
        return OrderPlaced(order=int(payload), customer="?")


@pytest.mark.parametrize("message", [_ORDER, Greeting("hi", 2), StringValue(value="tea")])
def test_a_registered_message_comes_back_as_it_went(types: TypeRegistry, message: object) -> None:
    encoded = types.encode(message)
    assert types.name_of(message) == encoded.name
    assert types.decode(*encoded) == message


def test_models_and_protobuf_are_written_as_autogen_writes_them(types: TypeRegistry) -> None:
    for message in (_ORDER, StringValue(value="tea")):
        serializer = try_get_known_serializers_for_type(type(message))[0]
        assert types.encode(message) == Encoded(
            serializer.type_name, serializer.data_content_type, serializer.serialize(message)
        )


def test_a_dataclass_and_autogen_read_each_other(types: TypeRegistry) -> None:
    serializer = try_get_known_serializers_for_type(Greeting)[0]
    greeting = Greeting("hé", 3)
    assert serializer.deserialize(types.encode(greeting).data) == greeting
    assert types.decode("Greeting", JSON_DATA_CONTENT_TYPE, serializer.serialize(greeting)) == greeting


def test_names_are_those_of_classes_and_of_protobuf_messages(types: TypeRegistry) -> None:
    assert list(types.names()) == [
        *("null", "bool", "int", "float", "str", "list", "dict"),
        *("OrderPlaced", "Greeting", "google.protobuf.StringValue"),
    ]


def test_registering_again_changes_nothing(types: TypeRegistry) -> None:
    before = list(types.names())
    types.add(try_get_known_serializers_for_type(OrderPlaced))
    types.add_type(OrderPlaced)
    types.add_type(Greeting | None)
    assert list(types.names()) == before


def test_a_second_class_of_one_name_is_refused_naming_both(types: TypeRegistry) -> None:
    other = _other_order_placed()
    for register in (types.add_type, lambda cls: types.add(try_get_known_serializers_for_type(cls))):
        with pytest.raises(TypeConflict) as caught:
            register(other)
        assert (caught.value.first, caught.value.second) == (OrderPlaced, other)
        assert f"{__name__}._other_order_placed" in str(caught.value)
    assert types.decode(*types.encode(_ORDER)) == _ORDER


def test_one_class_defined_twice_is_two_classes() -> None:
    types = TypeRegistry()
    types.add_type(_other_order_placed())
    with pytest.raises(TypeConflict):
        types.add_type(_other_order_placed())


def test_a_message_of_an_unregistered_class_with_a_taken_name_is_a_conflict(types: TypeRegistry) -> None:
    with pytest.raises(TypeConflict):
        types.encode(_other_order_placed()(order=1))


def test_another_name_solves_a_conflict_in_either_order(types: TypeRegistry) -> None:
    other = _other_order_placed()
    types.add_type(other, "shop.OrderPlaced")
    types.add_type(other)
    types.add(try_get_known_serializers_for_type(other))
    message = other(order=1)
    assert types.name_of(message) == "shop.OrderPlaced"
    assert types.decode(*types.encode(message)) == message
    types.add_type(OrderPlaced, "shop.Order")
    assert types.name_of(_ORDER) == "shop.Order"
    assert types.decode("OrderPlaced", JSON_DATA_CONTENT_TYPE, types.encode(_ORDER).data) == _ORDER


def test_an_unregistered_class_or_name_is_refused() -> None:
    types = TypeRegistry()
    for use in (types.encode, types.name_of):
        with pytest.raises(UnregisteredType) as caught:
            use(_ORDER)
        assert caught.value.type_name == "OrderPlaced"
    with pytest.raises(UnregisteredType):
        types.decode("os.system", JSON_DATA_CONTENT_TYPE, b"{}")
    with pytest.raises(UnregisteredType):
        types.schema_digest("OrderPlaced")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("OrderPlaced", b'{"order":"x","customer":1}', "order: Input should be a valid integer"),
        ("OrderPlaced", b"{", "Invalid JSON"),
        ("OrderPlaced", b"\xff", "Invalid JSON"),
        ("Greeting", b'{"text":"hi","times":"often"}', "times: Input should be a valid integer"),
        ("Greeting", b'{"times":1}', "text: Field required"),
        ("Greeting", b"null", "object"),
        ("google.protobuf.StringValue", b"{}", "DecodeError"),
    ],
)
def test_data_of_another_shape_is_malformed(types: TypeRegistry, name: str, data: bytes, reason: str) -> None:
    content_type = PROTOBUF_DATA_CONTENT_TYPE if "." in name else JSON_DATA_CONTENT_TYPE
    with pytest.raises(MalformedMessage) as caught:
        types.decode(name, content_type, data)
    assert caught.value.type_name == name
    assert reason in caught.value.reason


def test_a_protobuf_message_of_another_type_is_malformed(types: TypeRegistry) -> None:
    types.add_type(Int32Value)
    data = types.encode(Int32Value(value=1)).data
    with pytest.raises(MalformedMessage):
        types.decode("google.protobuf.StringValue", PROTOBUF_DATA_CONTENT_TYPE, data)


def test_a_reason_is_short_and_free_of_data(types: TypeRegistry) -> None:
    secret = b'{"order":"' + b"secret" * 100_000 + b'","customer":{"' + b"k" * 10_000 + b'":1}}'
    with pytest.raises(MalformedMessage) as caught:
        types.decode("OrderPlaced", JSON_DATA_CONTENT_TYPE, secret)
    assert len(str(caught.value)) < 500
    assert "secret" not in str(caught.value)
    types.add_type(RootModel[list[int]], "Numbers")
    with pytest.raises(MalformedMessage, match="and 997 more"):
        types.decode("Numbers", JSON_DATA_CONTENT_TYPE, b"[" + b",".join([b'"x"'] * 1000) + b"]")


def test_unknown_fields_are_ignored(types: TypeRegistry) -> None:
    assert types.decode("Greeting", JSON_DATA_CONTENT_TYPE, b'{"text":"hi","tone":"warm"}') == Greeting("hi")


def test_media_types_are_matched_by_meaning(types: TypeRegistry) -> None:
    data = types.encode(_ORDER).data
    assert types.decode("OrderPlaced", "application/json; charset=utf-8", data) == _ORDER
    with pytest.raises(MalformedMessage, match="text/plain"):
        types.decode("OrderPlaced", "text/plain", data)
    with pytest.raises(MalformedMessage):
        types.decode("google.protobuf.StringValue", JSON_DATA_CONTENT_TYPE, b'"tea"')


def test_a_custom_serializer_is_for_the_first_class_of_its_name() -> None:
    types = TypeRegistry()
    types.add(ThingSerializer())
    encoded = types.encode(Thing("x"))
    assert encoded == ("Thing", "text/x-thing", b"x")
    assert types.decode(*encoded).text == "x"
    with pytest.raises(TypeConflict):
        types.encode(type("Thing", (), {})())


def test_a_custom_serializer_may_say_its_class_and_choose_a_name() -> None:
    types = TypeRegistry()
    types.add([NamedThingSerializer()])
    assert types.encode(Thing("x")) == ("acme.thing", "text/x-thing", b"x")


@pytest.mark.parametrize("custom_first", [True, False])
def test_a_custom_serializer_wins_over_the_standard_one(custom_first: bool) -> None:
    types = TypeRegistry()
    both = [TerseOrderSerializer(), *try_get_known_serializers_for_type(OrderPlaced)]
    types.add(both if custom_first else both[::-1])
    assert types.encode(_ORDER) == ("OrderPlaced", JSON_DATA_CONTENT_TYPE, b"7")
    assert types.decode("OrderPlaced", JSON_DATA_CONTENT_TYPE, b"7").order == 7


def test_a_custom_serializer_cannot_smuggle_fields_into_an_envelope() -> None:
    class Smuggler(TerseOrderSerializer):
        def serialize(self, message: OrderPlaced) -> bytes:
            return b'1,"to":"admin/x"'

    types = TypeRegistry()
    types.add(Smuggler())
    with pytest.raises(MalformedMessage):
        types.encode(_ORDER)


def test_what_a_serializer_raises_is_malformed() -> None:
    types = TypeRegistry()
    types.add(ThingSerializer())
    with pytest.raises(MalformedMessage, match="AttributeError"):
        types.encode(type("Thing", (), {})())
    types.add_type(Holder)
    with pytest.raises(MalformedMessage, match="cannot be written"):
        types.encode(Holder(anything=object()))


class Holder(BaseModel):
    """A model with a field that may hold something that cannot be written."""

    anything: Any


@dataclass
class Order:
    """The same message as `_Elsewhere.Order`."""

    title: str
    count: int = 1


class _Elsewhere:
    @dataclass
    class Order:
        """Described in other words, its fields in another order."""

        count: int = 1
        title: str = ""


def test_digests_compare_schemas_not_names() -> None:
    def digest(cls: type[Any]) -> str:
        types = TypeRegistry()
        types.add_type(cls, "Order")
        return types.schema_digest("Order")

    @dataclass
    class Third:
        """The same fields as Order."""

        title: str
        count: int = 1

    assert len(digest(Order)) == 8
    assert digest(Order) == digest(Third)
    assert digest(Order) != digest(_Elsewhere.Order)  # there the title may be left out
    assert digest(Order) != digest(OrderPlaced)


def test_a_field_called_title_or_description_counts() -> None:
    def digest(**fields: Any) -> str:
        types = TypeRegistry()
        types.add_type(type("Page", (BaseModel,), {"__annotations__": fields}))
        return types.schema_digest("Page")

    assert digest(title=str, description=str) == digest(description=str, title=str)
    assert digest(title=str, description=str) != digest(title=str, description=int)
    assert digest(title=str) != digest(description=str)


def test_there_is_no_digest_where_there_is_no_schema(types: TypeRegistry) -> None:
    types.add(ThingSerializer())
    assert {types.schema_digest(name) for name in ("Thing", "int", "google.protobuf.StringValue")} == {""}
