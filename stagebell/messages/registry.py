"""Message class ↔ wire name ↔ bytes.

Within a process a type is its class; across processes it is its wire name, and `schema_digest` tells whether
two processes mean the same by it. What holds:

- One wire name has one class. A second class under it is refused, even if module and name are the same.
- A class is written under one name: the one given explicitly, else its class name. It is read under every
  name it was registered with.
- A serializer of the user replaces the standard one for its class, never the other way round.
- Only registered types are read. ``null bool int float str list dict`` are always registered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from autogen_core import JSON_DATA_CONTENT_TYPE, MessageSerializer

from stagebell.errors import MalformedMessage, MessageError, TypeConflict, UnregisteredType
from stagebell.messages import wire_types
from stagebell.messages.envelope import is_json
from stagebell.messages.reasons import explain
from stagebell.messages.wire_types import WireType


class Encoded(NamedTuple):
    """A message as bytes: its wire name, the media type of `data`, and `data`."""

    name: str
    content_type: str
    data: bytes


class TypeRegistry:
    """The types of one runtime."""

    def __init__(self) -> None:
        self._by_class: dict[type[Any], WireType] = {}
        self._by_wire: dict[tuple[str, str], WireType] = {}
        self._by_name: dict[str, WireType] = {}
        self._shapes: dict[type[Any], list[WireType]] = {}
        self._plain: dict[type[Any], WireType] = {}
        self._digests: dict[str, str] = {}
        for entry in wire_types.builtins():
            self._admit(entry, explicit=False)

    def add(self, serializer: MessageSerializer[Any] | Sequence[MessageSerializer[Any]]) -> None:
        """Register the class of an AutoGen serializer, or of each of several. Again is no change.

        Raises:
            TypeConflict: another class has the wire name.
            WrongType: it is no serializer.
        """
        wire_types.require_serializer(serializer)
        if isinstance(serializer, Sequence):
            for each in serializer:
                self.add(each)
            return
        self._admit(wire_types.of_serializer(serializer), explicit=False)

    def add_type(self, annotation: Any, name: str | None = None) -> None:
        """Register a class or what a handler returns: ``Order``, ``list[Order]``, ``Order | None``.

        The items of a list, dict, set or tuple come back as their classes where its annotation was registered
        on both sides. Another list or dict is read as plain JSON: models in it come back as dicts. ``Any``
        registers nothing.

        Args:
            annotation: anything pydantic can describe, or a protobuf class. Each member of a union is
                registered, and each model and dataclass inside a ``list[…]``.
            name: wire name; by default the class name, protobuf's full name, or ``list[Order]``.

        Raises:
            TypeConflict: another class has the wire name.
            UnregisteredType: nothing is known that can write such values; give `add` a serializer for them.
        """
        each_member = wire_types.members(annotation)
        for member in each_member:
            wire_name = name if len(each_member) == 1 else None
            if not wire_types.is_plain_class(member):
                for cls in wire_types.classes_in(member):
                    self.add_type(cls)
                self._admit_shape(wire_types.of_annotation(member, wire_name))
            elif wire_name is not None or not self._knows(member):
                self._admit(wire_types.of_class(member, wire_name), explicit=wire_name is not None)

    def name_of(self, message: object) -> str:
        """Return the wire name under which `message` travels.

        Raises:
            UnregisteredType: its class is not registered.
        """
        return (self._by_class.get(type(message)) or self._find(message)).name

    def name_of_class(self, cls: type) -> str:
        """Return the wire name of a class; one that is not known is registered.

        Raises:
            UnregisteredType: nothing is known that can write it.
        """
        if cls not in self._by_class:
            self.add_type(cls)
        return self._by_class[cls].name

    def encode(self, message: object) -> Encoded:
        """Return `message` as bytes.

        Raises:
            UnregisteredType: its class is not registered.
            MalformedMessage: it holds something that cannot be written.
        """
        entry = self._by_class.get(type(message)) or self._find(message)
        try:
            return Encoded(entry.name, entry.content_type, entry.dump(message))
        except MessageError:
            raise
        except Exception as error:  # serializers and validators of the user may raise anything
            raise MalformedMessage(entry.name, f"it cannot be written: {explain(error)}") from error

    def decode(self, name: str, content_type: str, data: bytes) -> Any:
        """Return the message in `data`.

        Args:
            name: its wire name.
            content_type: media type of `data`.
            data: the encoded message.

        Raises:
            UnregisteredType: the name is not registered.
            MalformedMessage: `data` is not what the type asks for, or is of another media type.
        """
        entry = self._by_wire.get((name, content_type)) or self._find_wire(name, content_type)
        try:
            return entry.load(data)
        except MessageError:
            raise
        except Exception as error:  # serializers and validators of the user may raise anything
            raise MalformedMessage(name, explain(error)) from error

    def schema_digest(self, name: str) -> str:
        """Return 8 hex digits of a type's JSON schema; '' where it has none (protobuf, custom, plain JSON).

        Raises:
            UnregisteredType: the name is not registered.
        """
        entry = self._by_name.get(name)
        if entry is None:
            raise UnregisteredType(name)
        known = self._digests.get(name)
        if known is None:
            known = self._digests[name] = _digest(entry)
        return known

    def names(self) -> Iterator[str]:
        """Return an iterator over the wire names, the built-in ones first."""
        return iter(tuple(self._by_name))

    def _knows(self, cls: type[Any]) -> bool:
        return cls in self._by_class or cls in self._plain

    def _admit(self, entry: WireType, *, explicit: bool) -> None:
        """Take in an entry; a standard one for a class that has one already changes nothing."""
        if not explicit and not entry.custom and entry.cls is not None and self._knows(entry.cls):
            return
        holder = self._by_name.get(entry.name)
        if holder is not None:
            _check_same(holder, entry)
            entry.cls = entry.cls or holder.cls
            present = self._by_wire.get((entry.name, entry.content_type))
            if present is not None and not entry.custom:
                self._write_as(present)
                return
        self._enter(entry)

    def _enter(self, entry: WireType) -> None:
        self._by_name[entry.name] = self._by_wire[entry.name, entry.content_type] = entry
        self._digests.pop(entry.name, None)
        self._write_as(entry)

    def _write_as(self, entry: WireType) -> None:
        """From now on write the entry's class through it."""
        if entry.cls is not None:
            chosen = self._plain if entry.cls in self._shapes else self._by_class
            chosen[entry.cls] = entry

    def _admit_shape(self, entry: WireType) -> None:
        """Take in an annotation: values of its class are from now on looked at before they are written."""
        holder = self._by_name.get(entry.name)
        if holder is not None:
            _check_same(holder, entry)
            return
        cls = cast("type[Any]", entry.cls)
        self._by_name[entry.name] = self._by_wire[entry.name, entry.content_type] = entry
        self._shapes.setdefault(cls, []).append(entry)
        plain = self._by_class.pop(cls, None)
        if plain is not None:
            self._plain[cls] = plain

    def _find(self, message: object) -> WireType:
        """The entry of a message that its class alone does not tell."""
        cls = type(message)
        for shape in self._shapes.get(cls, ()):
            if shape.accepts is not None and shape.accepts(message):
                return shape
        if cls in self._plain:
            return self._plain[cls]
        entry = self._by_name.get(cls.__name__)
        if entry is None:
            raise UnregisteredType(cls.__name__)
        if entry.cls is not None:
            raise TypeConflict(entry.name, entry.cls, cls)
        # A serializer that does not name its class is for the first class of its type name that comes along.
        entry.cls = cls
        self._by_class[cls] = entry
        return entry

    def _find_wire(self, name: str, content_type: str) -> WireType:
        """The entry of a name whose media type is spelled in another way."""
        if name not in self._by_name:
            raise UnregisteredType(name)
        entry = self._by_wire.get((name, JSON_DATA_CONTENT_TYPE))
        if entry is None or not is_json(content_type):
            raise MalformedMessage(name, f"this type does not travel as {content_type[:60]!r}")
        return entry


def _check_same(holder: WireType, entry: WireType) -> None:
    """Refuse a second class under one name."""
    if holder.cls is not None and entry.cls is not None and holder.cls is not entry.cls:
        raise TypeConflict(entry.name, holder.cls, entry.cls)


def _digest(entry: WireType) -> str:
    if entry.schema is None:
        return ""
    try:
        return wire_types.digest(entry.schema())
    except Exception:  # a type can be written and read and still have no JSON schema
        return ""
