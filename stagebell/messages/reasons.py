"""An error's reason in a few words, without the data that caused it."""

from __future__ import annotations

from pydantic import ValidationError

REASON_CHARACTERS = 300
SHOWN_ERRORS = 3


def shorten(text: str, limit: int = REASON_CHARACTERS) -> str:
    """Return `text` on one line, cut to `limit` characters in its middle: it ends with what to do."""
    if len(text) > 8 * limit:
        text = f"{text[: 4 * limit]} {text[-4 * limit :]}"
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    end = (limit - 1) // 3
    return f"{line[: limit - 1 - end]}…{line[len(line) - end :]}"


def explain(error: BaseException) -> str:
    """Return why reading or writing failed: at most 300 characters, never the data itself."""
    if isinstance(error, ValidationError):
        return shorten(_explain_validation(error))
    return shorten(f"{type(error).__name__}: {error}" if type(error) is not ValueError else str(error))


def _explain_validation(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{_path(each['loc'])}{each['msg']}" for each in details[:SHOWN_ERRORS]]
    hidden = len(details) - len(shown)
    return "; ".join(shown) + (f"; and {hidden} more" if hidden else "")


def _path(location: tuple[int | str, ...]) -> str:
    return shorten(".".join(str(step) for step in location), 80) + ": " if location else ""
