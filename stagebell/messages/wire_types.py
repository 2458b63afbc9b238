"""How one class is written and read: the entries of the `TypeRegistry`.

    pydantic model       its own JSON, as AutoGen's serializer writes it
    dataclass            JSON of its fields, as AutoGen's serializer writes it
    protobuf message     AutoGen's serializer: packed in a google.protobuf.Any
    anything else        JSON through a pydantic TypeAdapter
    scalars, containers  plain JSON under the fixed names null bool int float str list dict
    a serializer given   whatever it does

Whatever pydantic describes is read with the types of its fields checked; unknown fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import UnionType
from typing import Annotated, Any, Literal, NewType, Union, cast, get_args, get_origin, get_type_hints

from autogen_core import JSON_DATA_CONTENT_TYPE, MessageSerializer, try_get_known_serializers_for_type
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import from_json, to_json
from typing_extensions import TypeAliasType, is_typeddict

from stagebell.errors import UnregisteredType, WrongType
from stagebell.messages.envelope import is_json

# JSON has no bytes and no NaN: both travel as text where the type says how to read them back.
_CONFIG = ConfigDict(ser_json_inf_nan="strings", ser_json_bytes="base64", val_json_bytes="base64")
_alias: Callable[[str, Any], Any] = TypeAliasType
_UNIONS = (Union, UnionType)
_NOT_DESCRIBED = (PydanticUserError, TypeError, ValueError, NameError)
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "dependentSchemas")
_OWN = ("stagebell.messages.", "stagebell.tools.", "stagebell.agents.")  # modules whose classes are not the user's
_PLAIN_VALUES = ("default", "const", "enum", "examples")


@dataclass(slots=True, eq=False)
class WireType:
    """One entry: a class, its name, and how it is written and read.

    `cls` is None while a serializer that does not name its class has not met it.
    `accepts` tells whether a value belongs to an annotation such as ``list[Order]``; None for a plain class.
    """

    name: str
    cls: type[Any] | None
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    content_type: str = JSON_DATA_CONTENT_TYPE
    schema: Callable[[], dict[str, Any]] | None = None
    custom: bool = False
    accepts: Callable[[Any], bool] | None = None


def of_class(cls: type[Any], name: str | None = None) -> WireType:
    """Return the entry of a class.

    Args:
        cls: pydantic model, dataclass, protobuf class, or any class pydantic can describe.
        name: wire name; unless given the class name (protobuf: full name; messages of this package: `stagebell.` and
            the class name).

    Raises:
        UnregisteredType: nothing is known that can write it.
    """
    if name is None and cls.__module__.startswith(_OWN):
        name = f"stagebell.{cls.__name__}"  # which no message of a user has
    try:
        if issubclass(cls, BaseModel):
            return _of_model(cls, name or cls.__name__)
        if not hasattr(cls, "__dataclass_fields__"):
            known = try_get_known_serializers_for_type(cls)
            return _of_known(cls, name, known[0]) if known else _of_described(cls, cls, name or cls.__name__)
        if cls.__dataclass_params__.init:
            return _of_described(cls, cls, name or cls.__name__)
        # A hand-written __init__ must run, so such a dataclass is left to AutoGen's serializer.
        return _of_known(cls, name, try_get_known_serializers_for_type(cls)[0])
    except _NOT_DESCRIBED as error:
        raise UnregisteredType(name or cls.__name__) from error


def of_annotation(annotation: Any, name: str | None = None) -> WireType:
    """Return the entry of an annotation such as ``list[Order]``; its name is ``list[Order]`` unless given.

    Raises:
        UnregisteredType: pydantic cannot describe it.
    """
    wire_name = name or annotation_name(annotation)
    try:
        entry = _of_described(annotation, _value_class(annotation), wire_name)
        validate = TypeAdapter[Any](annotation).validator.validate_python
    except _NOT_DESCRIBED as error:
        raise UnregisteredType(wire_name) from error

    def accepts(value: Any) -> bool:
        try:
            validate(value, strict=True)
        except ValueError:
            return False
        return True

    entry.accepts = accepts
    return entry


def require_serializer(given: object) -> None:
    """Raises WrongType when this is no serializer; of several each is asked for by itself."""
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return
    if isinstance(given, type) or not all(hasattr(given, each) for each in ("type_name", "serialize", "deserialize")):
        wanted = given.__name__ if isinstance(given, type) else "Order"
        raise WrongType(
            f"the serializer must be a MessageSerializer, not {given!r:.80}: "
            f"write try_get_known_serializers_for_type({wanted})"
        )


def of_serializer(serializer: MessageSerializer[Any]) -> WireType:
    """Return the entry of an AutoGen serializer, its own three kinds or a custom one."""
    cls = _serialized_class(serializer)
    if cls is not None and type(serializer).__module__ == MessageSerializer.__module__:
        try:
            return of_class(cls, None if serializer.type_name == cls.__name__ else serializer.type_name)
        except UnregisteredType:
            return _of_known(cls, None, serializer)
    entry = _of_known(cls, None, serializer)
    if is_json(entry.content_type):
        entry.dump = _checked(serializer.serialize)
    entry.custom = True
    return entry


def builtins() -> list[WireType]:
    """Return the entries of JSON's own types, which every process knows."""
    named: list[tuple[str, type[Any]]] = [(cls.__name__, cls) for cls in (bool, int, float, str, list, dict)]
    named.insert(0, ("null", type(None)))
    return [WireType(name, cls, to_json, _plain_reader(name, cls)) for name, cls in named]


def members(annotation: Any) -> list[Any]:
    """Return the members of a union, else the annotation itself; aliases are looked through."""
    origin = get_origin(annotation)
    if origin in _UNIONS:
        return [inner for each in get_args(annotation) for inner in members(each)]
    if origin is Annotated:
        return members(get_args(annotation)[0])
    if origin is Literal:
        return [type(each) for each in get_args(annotation)]
    if isinstance(annotation, TypeAliasType):
        return members(annotation.__value__)
    if isinstance(annotation, NewType):
        return members(annotation.__supertype__)
    if annotation is Any or annotation is object:
        return []
    return [type(None) if annotation is None else annotation]


def classes_in(annotation: Any) -> list[type[Any]]:
    """Return the models and dataclasses inside an annotation: ``Order`` for ``dict[str, list[Order]]``."""
    if is_plain_class(annotation):
        is_message = issubclass(annotation, BaseModel) or hasattr(annotation, "__dataclass_fields__")
        return [annotation] if is_message else []
    return [cls for each in get_args(annotation) for cls in classes_in(each)]


def is_plain_class(annotation: Any) -> bool:
    """Return whether values of `annotation` are known by their class alone."""
    if annotation is Any or annotation is object or is_typeddict(annotation):
        return False
    return isinstance(annotation, type) and get_origin(annotation) is None


def annotation_name(annotation: Any) -> str:
    """Return the wire name of an annotation: ``list[Order]``, ``dict[str,Order|null]``."""
    if annotation is None or annotation is type(None):
        return "null"
    arguments = [annotation_name(each) for each in get_args(annotation)]
    origin = get_origin(annotation)
    if origin in _UNIONS:
        return "|".join(arguments)
    bare = origin if origin is not None else annotation
    name = getattr(bare, "__name__", None) or repr(bare)
    return f"{name}[{','.join(arguments)}]" if arguments else str(name)


def digest(schema: dict[str, Any]) -> str:
    """Return 8 hex digits of a JSON schema, without its titles, descriptions and order of members."""
    text = json.dumps(_canonical(schema), sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _of_model(cls: type[BaseModel], name: str) -> WireType:
    def dump(message: BaseModel) -> bytes:
        return message.model_dump_json().encode()

    writer, load = cast(Callable[[Any], bytes], dump), cast(Callable[[bytes], Any], cls.model_validate_json)
    # The bound methods of pydantic's core save two calls, where the class is complete and overrides neither.
    if cls is not BaseModel and (cls.__pydantic_complete__ or cls.model_rebuild(raise_errors=False)):
        if cls.model_dump_json is BaseModel.model_dump_json:
            writer = cls.__pydantic_serializer__.to_json
        if getattr(load, "__func__", None) is getattr(BaseModel.model_validate_json, "__func__", ""):
            load = cls.__pydantic_validator__.validate_json
    return WireType(name, cls, writer, load, schema=cls.model_json_schema)


def _of_described(annotation: Any, cls: type[Any], name: str) -> WireType:
    # Behind an alias a dataclass takes the config that TypeAdapter refuses for a bare one.
    adapter = TypeAdapter[Any](_alias("Data", annotation), config=_CONFIG)

    def schema() -> dict[str, Any]:
        return TypeAdapter[Any](annotation).json_schema()

    return WireType(name, cls, adapter.serializer.to_json, adapter.validator.validate_json, schema=schema)


def _of_known(cls: type[Any] | None, name: str | None, serializer: MessageSerializer[Any]) -> WireType:
    """The entry of a class for which a serializer does the work."""
    return WireType(
        name or serializer.type_name,
        cls,
        serializer.serialize,
        serializer.deserialize,
        serializer.data_content_type,
    )


def _serialized_class(serializer: MessageSerializer[Any]) -> type[Any] | None:
    """The class that a serializer says it is for: its `cls`, else the return type of `deserialize`."""
    cls = getattr(serializer, "cls", None)
    if cls is None:
        try:
            cls = get_type_hints(serializer.deserialize).get("return")
        except (NameError, TypeError):
            return None
    return cast("type[Any]", cls) if is_plain_class(cls) else None


def _checked(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A custom serializer's JSON is copied into the envelope, so it has to be JSON."""

    def dump(message: Any) -> bytes:
        data = serialize(message)
        from_json(data)
        return data

    return dump


def _plain_reader(name: str, cls: type[Any]) -> Callable[[bytes], Any]:
    def load(data: bytes) -> Any:
        value = from_json(data)
        if type(value) is cls:
            return value
        if cls is float and type(value) is int:
            return float(value)  # JSON of other languages does not tell 1.0 from 1
        raise ValueError(f"it is not a JSON {name}")

    return load


def _value_class(annotation: Any) -> type[Any]:
    """The class that values of an annotation have: ``list`` for ``list[Order]`` and ``Sequence[Order]``."""
    if is_typeddict(annotation):
        return dict
    origin = get_origin(annotation)
    if not isinstance(origin, type):
        raise TypeError(f"the class of {annotation} values is not known")
    for concrete in (list, dict):
        if issubclass(concrete, origin):
            return concrete
    return origin


def _canonical(schema: Any) -> Any:
    """A JSON schema without its titles and descriptions; members may well have these names."""
    if isinstance(schema, list):
        return [_canonical(each) for each in cast(Sequence[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for word, value in cast(dict[str, Any], schema).items():
        if word in ("title", "description"):
            continue
        if word in _NAMED_SCHEMAS and isinstance(value, dict):
            result[word] = {name: _canonical(each) for name, each in cast(dict[str, Any], value).items()}
        elif word in _PLAIN_VALUES:
            result[word] = value
        elif word == "required":
            result[word] = sorted(value)
        else:
            result[word] = _canonical(value)
    return result
