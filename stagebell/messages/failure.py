"""Exception ↔ bytes: what a handler raised, told to a caller elsewhere.

Reading a failure imports nothing and builds nothing but exceptions: the class is looked up among the modules
that are loaded, must be an ordinary exception, and is built without its ``__init__``. Whatever does not come
out the same, told by its text, becomes a `RemoteHandlerError` that says what it was.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Final, cast

from autogen_core.tool_agent import ToolException
from pydantic_core import from_json, to_json

from stagebell.errors import MalformedMessage, RemoteHandlerError
from stagebell.messages.envelope import FAILURE_TYPE
from stagebell.messages.reasons import explain

TEXT_CHARACTERS: Final = 32_768
REASON_CHARACTERS: Final = 1000
TRACEBACK_CHARACTERS: Final = 16_384
VALUE_BYTES: Final = 16_384
ATTRIBUTES_BYTES: Final = 65_536
_DEPTH = 8
_JSON_TYPES = {"type": str, "text": str, "traceback": str, "args": list, "attributes": dict}

_ALLOWED = (Exception, ToolException)
_CANCELLED = "asyncio.exceptions:CancelledError"  # by name: nothing here imports an event loop
# The first three would end the process that reads them; the others cannot be raised into a future.
_REFUSED = (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration)


class RemoteTraceback(Exception):
    """The traceback of the far side; the cause of a restored exception, so that it is printed with it."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def describe(error: BaseException, traceback: str = "") -> bytes:
    """Return what `restore` needs to raise `error` elsewhere.

    Arguments and attributes travel as far as they are plain JSON and small: each up to 16 KiB, attributes up
    to 64 KiB together. Longer text is cut to 32,768 characters, a longer traceback to its last 16,384. Never
    raises: of an exception that cannot be described remain its type and a text that says so.

    Args:
        error: any exception.
        traceback: its traceback as text.
    """
    fields: dict[str, Any] = {"type": name_of(type(error))}
    try:
        fields["text"] = _writable(_text_of(error), TEXT_CHARACTERS)
        fields |= _details(error)
        if traceback:
            fields["traceback"] = _writable(traceback[-TRACEBACK_CHARACTERS:], TRACEBACK_CHARACTERS)
        return to_json(fields)
    except BaseException as broken:  # the user's properties may raise anything, SystemExit too
        text = f"<describing it raised {name_of(type(broken))}>"
        return to_json({"type": fields["type"], "text": text})


def name_of(cls: type[BaseException]) -> str:
    """Return the name under which exceptions of a class travel: module:qualname."""
    try:
        return _writable(f"{cls.__module__}:{cls.__qualname__}", 1024)
    except BaseException:  # a metaclass may answer with anything
        return "?:?"


def reason_text(error: BaseException) -> str:
    """Return class and text of any exception in one line; never raises."""
    name = name_of(type(error)).rpartition(":")[2]
    try:
        text = " ".join(str(error).split()).encode("utf-8", "backslashreplace").decode()
    except BaseException as broken:  # the user's __str__ may raise anything
        text = f"str() of it raised {name_of(type(broken))}"
    return f"{name}: {text}"[:REASON_CHARACTERS] if text else name


def restore(data: bytes, known: Mapping[str, type[BaseException]] | None = None) -> BaseException:
    """Return the exception in `data`, with the far side's traceback as `remote_traceback` and as its cause.

    Args:
        data: what `describe` returned.
        known: classes that cannot be found in their modules (made inside a function), by `name_of`.

    Raises:
        MalformedMessage: `data` is no description of an exception.
    """
    fields = _read(data)
    name, text, traceback = fields["type"], fields["text"], fields.get("traceback", "")
    error = _rebuild(_loaded_class(name) or _allowed((known or {}).get(name), name), text, fields)
    if error is not None:
        try:
            return _complete(error, fields, traceback)
        except Exception:  # a class may have made properties of what every exception has
            pass
    return _complete(RemoteHandlerError(name, text, traceback), fields, traceback)


def _complete(error: BaseException, fields: dict[str, Any], traceback: str) -> BaseException:
    """The exception with its notes, and the far side's traceback as its attribute and its cause."""
    if traceback or not isinstance(error, RemoteHandlerError):
        error.__dict__["remote_traceback"] = traceback
    for note in fields["notes"]:
        error.add_note(note)
    if traceback:
        error.__cause__ = RemoteTraceback(traceback)
    return error


def _details(error: BaseException) -> dict[str, Any]:
    """What of an exception can travel besides its text."""
    found: dict[str, Any] = {}
    arguments = _arguments(error)
    if arguments is not None and _size(arguments) <= VALUE_BYTES:
        found["args"] = arguments
    attributes = _attributes(error)
    if attributes:
        found["attributes"] = attributes
    notes = _notes(getattr(error, "__notes__", None))
    if notes:
        found["notes"] = notes
    return found


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # the user's __str__ may raise anything
        return f"<str() of it raised {type(broken).__name__}>"


def _writable(text: str, limit: int) -> str:
    """Text that UTF-8 can write, cut to a number of characters."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


def _arguments(error: BaseException) -> list[Any] | None:
    arguments = list(error.args)
    if isinstance(error, OSError) and error.filename is not None and len(arguments) == 2:
        # OSError takes the file names out of its args and wants them back in these places.
        second = [None, error.filename2] if error.filename2 is not None else []
        arguments += [error.filename, *second]
    return arguments if _is_plain(arguments) else None


def _attributes(error: BaseException) -> dict[str, Any]:
    """The attributes that are plain JSON, in their order until the budget is spent."""
    chosen: dict[str, Any] = {}
    budget = ATTRIBUTES_BYTES
    for name, value in vars(error).items():
        if type(cast(object, name)) is not str or name.startswith("__") or not _is_plain(value):
            continue
        size = _size({name: value})
        if size <= min(VALUE_BYTES, budget):
            chosen[name] = value
            budget -= size
    return chosen


def _notes(notes: object) -> list[str]:
    if not isinstance(notes, list):
        return []
    return [_writable(note, 1024) for note in cast(list[object], notes)[:16] if isinstance(note, str)]


def _is_plain(value: object, depth: int = _DEPTH) -> bool:
    """Whether a value comes back from JSON as it went; a tuple would come back as a list."""
    if value is None or type(value) in (str, bool, int):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if depth == 0:
        return False
    if type(value) is list:
        return all(_is_plain(each, depth - 1) for each in cast(list[object], value))
    if type(value) is dict:
        pairs = cast(dict[object, object], value).items()
        return all(type(key) is str and _is_plain(each, depth - 1) for key, each in pairs)
    return False


def _size(value: object) -> int:
    """Bytes of a plain value as JSON; above every limit for text that UTF-8 cannot write."""
    try:
        return len(to_json(value))
    except ValueError:
        return ATTRIBUTES_BYTES + 1


def _read(data: bytes) -> dict[str, Any]:
    try:
        fields = from_json(data)
    except ValueError as error:
        raise MalformedMessage(FAILURE_TYPE, f"it is not JSON: {explain(error)}") from None
    if not isinstance(fields, dict):
        raise MalformedMessage(FAILURE_TYPE, "it is not a JSON object")
    fields = cast(dict[str, Any], fields)
    for name, kind in _JSON_TYPES.items():
        if name in fields and not isinstance(fields[name], kind):
            raise MalformedMessage(FAILURE_TYPE, f"{name} must be a JSON {kind.__name__}")
    if not fields.get("type") or "text" not in fields:
        raise MalformedMessage(FAILURE_TYPE, "type or text is missing")
    fields["notes"] = _notes(fields.get("notes"))
    return fields


def _rebuild(cls: type[BaseException] | None, text: str, fields: dict[str, Any]) -> BaseException | None:
    """The exception itself; None without a class, or where it gives another text."""
    if cls is None:
        return None
    # Without arguments that can travel, the text is the best guess: it is what ValueError(obj) shows of them.
    arguments = tuple(fields["args"]) if "args" in fields else (text,)
    attributes = fields.get("attributes", {}).items()
    try:
        error = cls.__new__(cls, *arguments)
        if not isinstance(error, OSError) or not error.args:  # OSError has set them, without file names
            error.args = arguments
        error.__dict__.update((name, value) for name, value in attributes if not name.startswith("__"))
        return error if isinstance(error, cls) and str(error) == text else None
    except BaseException:  # the user's __new__ and __str__ may raise anything
        return None


def _loaded_class(name: str) -> type[BaseException] | None:
    """The exception class `module:qualname`, if its module is loaded and the class may be raised here."""
    module_name, _, qualname = name.partition(":")
    holder: object = sys.modules.get(module_name)
    for step in qualname.split("."):
        # Not getattr(holder, step): that could run a module's __getattr__, which may import.
        namespace = getattr(holder, "__dict__", None)
        if not isinstance(namespace, Mapping):
            return None
        holder = cast(Mapping[str, object], namespace).get(step)
    return _allowed(holder, name)


def _allowed(found: object, name: str) -> type[BaseException] | None:
    """What was found under a name, if it is an exception that may be raised here."""
    if not isinstance(found, type) or not issubclass(found, BaseException) or issubclass(found, _REFUSED):
        return None
    return found if issubclass(found, _ALLOWED) or name == _CANCELLED else None
