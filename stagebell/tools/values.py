"""What tools return, as JSON that UTF-8 can write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError, to_jsonable_python

# It says fast whether there is anything in a value that cannot be sent; cycles are gone by then.
_write: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


class NotJson(TypeError):
    """A value cannot be written as JSON; `path` leads to the part that cannot, `type_name` says what it is."""

    def __init__(self, path: str, type_name: str) -> None:
        super().__init__(cleaned_text(f"{path} is a {type_name}, which cannot be written as JSON"))
        self.path = path
        self.type_name = type_name


def as_json(value: Any, name: str = "result") -> JsonValue:
    """A value as plain JSON data: models, dataclasses, dates, sets and the like are turned into it.

    What UTF-8 cannot write, half of a surrogate pair, is escaped: "\\ud800".

    Args:
        value: any object.
        name: what the error calls it.

    Raises:
        NotJson: a part of it cannot be written; NaN and infinities cannot.
    """
    if value is None or type(value) in (bool, int):
        return cast("JsonValue", value)
    if type(value) is str:
        return cleaned_text(value)
    try:
        return _plain(value)
    except (PydanticSerializationError, ValueError, RecursionError):
        path, part = _culprit(value, name)
        raise NotJson(path, f"float ({part})" if type(part) is float else type(part).__qualname__) from None


def cleaned_text(text: str) -> str:
    """A text that UTF-8 can write."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _plain(value: object) -> JsonValue:
    data: Any
    try:
        data = to_jsonable_python(value)
        _write(data).encode()
    except (UnicodeEncodeError, PydanticSerializationError):
        data = to_jsonable_python(_escaped(value))
        _write(data).encode()
    return cast("JsonValue", data)


def _escaped(value: object) -> object:
    """The same with all texts cleaned, as far as it consists of plain containers and models."""
    if isinstance(value, str):
        return cleaned_text(value)
    if isinstance(value, BaseModel):
        return _escaped(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _escaped(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {_escaped(key): _escaped(part) for key, part in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [_escaped(part) for part in cast("Sequence[object]", value)]
    return value


def _culprit(value: object, path: str, depth: int = 32) -> tuple[str, object]:
    """The innermost part that cannot be written."""
    for step, part in _parts(value) if depth else ():
        try:
            _plain(part)
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
