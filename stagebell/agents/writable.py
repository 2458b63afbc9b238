"""What a model says, as UTF-8 can write it: halves of surrogate pairs are escaped, and become six plain characters."""

from __future__ import annotations

import json
import re
from typing import Final

from pydantic import JsonValue

_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")
_HALF: Final = re.compile("[\ud800-\udfff]")


def writable(text: str) -> str:
    """A text that UTF-8 can write."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def writable_arguments(text: str) -> str:
    """Arguments of a call, of which all texts can be written once they are read."""
    text = writable(text)
    if not _ESCAPED.search(text):
        return text
    try:
        read = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text  # no JSON: nobody reads them
    fixed = _HALF.sub(lambda half: f"\\\\u{ord(half[0]):x}", read)
    return text if fixed == read else fixed


def writable_value(value: JsonValue) -> JsonValue:
    """The same for a value."""
    if isinstance(value, str):
        return writable(value)
    if not isinstance(value, dict | list):
        return value
    dumped = json.dumps(value)
    fixed = writable_arguments(dumped)
    read: JsonValue = value if fixed is dumped else json.loads(fixed)
    return read
