"""What the commands say: results on standard output, the rest on standard error, an error in one red line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

from stagebell.messages.reasons import shorten

USAGE = 2
"""Exit code of a command that was called in a wrong way."""
_LONGEST = 600


class CommandFailed(Exception):
    """A command cannot go on; the text says what happened and what to do."""

    def __init__(self, text: str, *, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def one_line(error: BaseException | str) -> str:
    """The text of an error without line breaks, not longer than a few lines of a terminal."""
    text = str(error).strip()
    if isinstance(error, BaseException) and not text:
        text = type(error).__name__
    return shorten(text, _LONGEST)


def failure_text(error: Exception) -> str:
    """The text of an error, with what to do about it where it does not say so itself."""
    text = one_line(error)
    if isinstance(error, ConnectionError) and text.startswith("cannot reach"):
        text += ". Is it running, and is its URL (--redis or STAGEBELL_REDIS) right?"
    return text


def say(text: str) -> None:
    """Tell the user something that is no result."""
    _write(sys.stderr, f"stagebell: {text}")


def give(text: str) -> None:
    """Write one line of the result; a program that reads it gets it at once."""
    _write(sys.stdout, text)


def say_error(text: str) -> None:
    """Tell what went wrong."""
    line = f"error: {one_line(text)}"
    _write(sys.stderr, f"\x1b[31m{line}\x1b[0m" if sys.stderr.isatty() else line)


def say_traceback(error: BaseException, conceal: Callable[[str], str]) -> None:
    """Show where an error came from."""
    _write(sys.stderr, conceal("".join(traceback.format_exception(error)).rstrip()))


@contextmanager
def tell_failures(conceal: Callable[[str], str], *, show_traceback: bool) -> Generator[None]:
    """Turn every error into a `CommandFailed` without secrets, after its traceback if that is wanted."""
    try:
        yield
    except CommandFailed as failed:
        if show_traceback and failed.__cause__ is not None:
            say_traceback(failed.__cause__, conceal)
        raise CommandFailed(conceal(str(failed)), code=failed.code) from None
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; nobody is left to tell.
        raise CommandFailed("nobody reads the output any more") from None
    except Exception as error:
        if show_traceback:
            say_traceback(error, conceal)
        raise CommandFailed(conceal(failure_text(error))) from None


def _write(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
