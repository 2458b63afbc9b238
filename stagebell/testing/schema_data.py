"""Data that a JSON schema allows, the smallest of it, always the same: what a model that calls every tool says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import JsonValue

_DEEPEST: Final = 12
_TEXTS: Final = {
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "duration": "P1D",
    "email": "a@example.org",
    "ipv4": "192.0.2.1",
    "time": "00:00:00Z",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example_of(schema: Mapping[str, Any]) -> JsonValue:
    """The smallest data that a schema allows: required fields alone, the first choice, the lowest number.

    Args:
        schema: a JSON schema, with its definitions under `$defs` or `definitions`.

    Returns:
        The data. Texts with a `pattern` are not matched: give a model that knows them.

    Raises:
        ValueError: the schema refers to what it does not define, or contains itself without end.
    """
    return _Examples(schema).of(schema, 0)


class _Examples:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def of(self, schema: Mapping[str, Any] | bool, depth: int) -> JsonValue:
        if isinstance(schema, bool):
            return None
        if depth > _DEEPEST:
            raise ValueError("the schema contains itself, and nothing in it says where to end")
        for name in ("const", "default"):
            if name in schema:
                return cast("JsonValue", schema[name])
        for name in ("enum", "examples"):
            if schema.get(name):
                return cast("JsonValue", schema[name][0])
        other = self._other(schema)
        return self._of_type(schema, depth) if other is None else self.of(other, depth + 1)

    def _other(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The schema that says what this one allows, when it says it in other words."""
        if "$ref" in schema:
            return self._resolve(schema["$ref"])
        if schema.get("allOf"):
            return self._merged(schema)
        for name in ("anyOf", "oneOf"):
            if schema.get(name):
                return cast("Mapping[str, Any]", schema[name][0])
        return None

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> JsonValue:
        match _type_of(schema):
            case "object":
                wanted, fields = schema.get("required", ()), schema.get("properties", {})
                return {name: self.of(fields.get(name, {}), depth + 1) for name in wanted}
            case "array":
                return self._array(schema, depth)
            case "integer":
                return math.ceil(_lowest(schema, 1))
            case "number":
                return _lowest(schema, 0.5)
            case "boolean":
                return False
            case "null":
                return None
            case _:
                return _text(schema)

    def _array(self, schema: Mapping[str, Any], depth: int) -> JsonValue:
        first = schema.get("prefixItems", ())
        found = [self.of(item, depth + 1) for item in first]
        while len(found) < schema.get("minItems", 0):
            found.append(self.of(schema.get("items", {}), depth + 1))
        return found

    def _resolve(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._root
        for name in reference.removeprefix("#/").split("/"):
            if not isinstance(found, Mapping) or name not in found:
                raise ValueError(f"the schema refers to {reference!r} and does not define it")
            found = cast("Mapping[str, Any]", found)[name]
        return cast("Mapping[str, Any]", found)

    def _merged(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        merged: dict[str, Any] = {name: value for name, value in schema.items() if name != "allOf"}
        for part in schema["allOf"]:
            resolved = self._resolve(part["$ref"]) if "$ref" in part else part
            merged["properties"] = {**merged.get("properties", {}), **resolved.get("properties", {})}
            merged["required"] = [*merged.get("required", ()), *resolved.get("required", ())]
            merged = {**resolved, **merged}
        return merged


def _type_of(schema: Mapping[str, Any]) -> str:
    kind: Any = schema.get("type", "object" if "properties" in schema else "string")
    return str(kind if isinstance(kind, str) else kind[0])


def _lowest(schema: Mapping[str, Any], above: float) -> float:
    """The lowest number that the bounds allow; 0 when they allow that. `above` is the least step over an open bound."""
    low, high = _bound(schema, "minimum", -math.inf), _bound(schema, "maximum", math.inf)
    open_low, open_high = _bound(schema, "exclusiveMinimum", -math.inf), _bound(schema, "exclusiveMaximum", math.inf)
    if low <= 0 <= high and open_low < 0 < open_high:
        return 0
    step = _bound(schema, "multipleOf", 0)
    if low > 0 or open_low >= 0:
        found = low if low > open_low else open_low + min(above, (min(high, open_high) - open_low) / 2)
        return math.ceil(found / step) * step if step else found
    found = high if high < open_high else open_high - above
    return math.floor(found / step) * step if step else found


def _bound(schema: Mapping[str, Any], name: str, otherwise: float) -> float:
    found: float = schema.get(name, otherwise)
    return found


def _text(schema: Mapping[str, Any]) -> str:
    text = _TEXTS.get(schema.get("format", ""), "a")
    return text.ljust(schema.get("minLength", 0), "a")[: schema.get("maxLength")]
