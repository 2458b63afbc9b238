"""Which code an error has, what the model is told of it, and whether the run goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from stagebell.errors import BusinessError, Denied, FatalToolError, InvalidArguments, ToolError, TransientError
from stagebell.messages.tool_calls import ErrorCode
from stagebell.tools.containing import words_of
from stagebell.tools.values import NotJson

Consequence = Literal["feed_back", "end_run"]

TEXT_CHARACTERS: Final = 2_000

_CODES: Final[tuple[tuple[type[BaseException], ErrorCode], ...]] = (
    (InvalidArguments, ErrorCode.INVALID_ARGUMENTS),
    (Denied, ErrorCode.DENIED),
    (BusinessError, ErrorCode.BUSINESS),
    (TransientError, ErrorCode.TRANSIENT),
    (FatalToolError, ErrorCode.FATAL),
    (NotJson, ErrorCode.FATAL),
    (ConnectionError, ErrorCode.TRANSIENT),
    (TimeoutError, ErrorCode.TIMEOUT),
    (PermissionError, ErrorCode.DENIED),
)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_CREDENTIALS: Final = re.compile(r"(\w://)[^\s/@]*@")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")

# After these two the model would guess, and might do again what has happened.
_ENDING: Final = (ErrorCode.FATAL, ErrorCode.OUTCOME_UNKNOWN)

DEFAULT: Final[Mapping[ErrorCode, Consequence]] = {
    code: "end_run" if code in _ENDING else "feed_back" for code in ErrorCode
}
"""What follows from an error of each code: the model reads it and goes on, or the run ends."""


class ErrorPolicy:
    """What follows from errors of tools.

    Args:
        changes: for some codes, something else than in `DEFAULT`; for `ErrorCode.UNKNOWN_TOOL` "end_run", say.
    """

    def __init__(self, changes: Mapping[ErrorCode, Consequence] | None = None) -> None:
        self._consequences = {**DEFAULT, **(changes or {})}

    def ends_run(self, code: ErrorCode | None) -> bool:
        """Whether a result of this code ends the run."""
        return code is not None and self._consequences[code] == "end_run"


def code_of(error: BaseException) -> ErrorCode:
    """The code of what a tool raised; "business" is also that of every exception which says nothing of itself."""
    return next((code for cls, code in _CODES if isinstance(error, cls)), ErrorCode.BUSINESS)


def text_of(error: BaseException) -> str:
    """What the model is told: never empty, without addresses in memory and without credentials."""
    said = words_of(error)
    name = type(error).__name__
    own_words = isinstance(error, ToolError | NotJson)
    text = said if own_words and said else f"{name}: {said}" if said else f"{name}, without a text"
    return cleaned(text)


def cleaned(text: str) -> str:
    """A text that UTF-8 can write, without addresses in memory and credentials, cut to 2,000 characters."""
    text = text[: 4 * TEXT_CHARACTERS].encode("utf-8", "backslashreplace").decode()
    text = _BEARER.sub(r"\1 ***", _CREDENTIALS.sub(r"\1***@", _ADDRESS.sub("", text)))
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"


def is_unclear(error: BaseException) -> bool:
    """Whether the tool may have had its effect although it raised this: the answer was lost, or time ran out."""
    return isinstance(error, ConnectionError | TimeoutError)
