"""What tools return, as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError, to_jsonable_python


class NotJson(TypeError):
    """A value cannot be written as JSON; `path` leads to the part that cannot, `type_name` says what it is."""

    def __init__(self, path: str, type_name: str) -> None:
        super().__init__(f"{path} is a {type_name}, which cannot be written as JSON")
        self.path = path
        self.type_name = type_name


def as_json(value: Any, name: str = "result") -> JsonValue:
    """A value as plain JSON data: models, dataclasses, dates, sets and the like are turned into it.

    Args:
        value: any object.
        name: what the error calls it.

    Raises:
        NotJson: a part of it cannot be written.
    """
    if value is None or type(value) in (str, bool, int):
        return cast("JsonValue", value)
    try:
        return cast("JsonValue", to_jsonable_python(value, inf_nan_mode="strings"))
    except (PydanticSerializationError, ValueError, RecursionError):
        path, part = _culprit(value, name)
        raise NotJson(path, type(part).__qualname__) from None


def _culprit(value: object, path: str, depth: int = 32) -> tuple[str, object]:
    """The innermost part that cannot be written."""
    for step, part in _parts(value) if depth else ():
        try:
            to_jsonable_python(part)
        except (PydanticSerializationError, ValueError, RecursionError):
            return _culprit(part, path + step, depth - 1)
    return path, value


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, BaseModel):
        yield from ((f".{name}", getattr(value, name)) for name in type(value).model_fields)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{each.name}", getattr(value, each.name)) for each in dataclasses.fields(value))
    elif isinstance(value, Mapping):
        yield from ((f".{key}", part) for key, part in cast("Mapping[object, object]", value).items())
    elif isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        yield from ((f"[{at}]", part) for at, part in enumerate(cast("Sequence[object]", value)))
