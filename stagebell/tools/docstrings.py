"""What a docstring says: of the function, and of each parameter. Google's, numpy's and Sphinx's ways are understood."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Final, NamedTuple

_SECTION: Final = re.compile(
    r"(args|arguments|parameters|params|returns?|raises|yields?|examples?|notes?|attributes|see also|warns?|warnings?"
    r"|references|other parameters|keyword args|keyword arguments):?\s*",
    re.IGNORECASE,
)
_OF_PARAMETERS: Final = {
    "args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments",
}  # fmt: skip
_GOOGLE: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_SPHINX: Final = re.compile(r":(\w+)(?:\s+(?:[^:]*\s)?(\w+))?:\s*(.*)")


class Docstring(NamedTuple):
    """The text before all sections, and what is said of each parameter."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring; what is not understood is left out."""
    lines = cleandoc(text or "").splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines) and not _begins_section(lines, at) and not _SPHINX.match(lines[at]):
        description.append(lines[at])
        at += 1
    while at < len(lines):
        at = _read_section(lines, at, parameters)
    return Docstring(_joined(description), parameters)


def _begins_section(lines: list[str], at: int) -> bool:
    found = _SECTION.fullmatch(lines[at])
    return found is not None and (lines[at].rstrip().endswith(":") or _underlined(lines, at))


def _underlined(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[at + 1]) is not None


def _read_section(lines: list[str], at: int, parameters: dict[str, str]) -> int:
    """Read what begins at a line; returns the line after it."""
    sphinx = _SPHINX.match(lines[at])
    if sphinx is not None:
        end = at + 1
        while end < len(lines) and lines[end][:1].isspace():
            end += 1
        if sphinx[1] in ("param", "parameter", "arg", "argument") and sphinx[2]:
            parameters[sphinx[2]] = _one_line([sphinx[3], *lines[at + 1 : end]])
        return end
    if not _begins_section(lines, at):
        return at + 1
    numpy = _underlined(lines, at)
    start = at + (2 if numpy else 1)
    end = start
    while end < len(lines) and not _begins_section(lines, end):
        end += 1
    if lines[at].strip().rstrip(":").lower() in _OF_PARAMETERS:
        _read_parameters(lines[start:end], _NUMPY if numpy else _GOOGLE, parameters)
    return end


def _read_parameters(lines: list[str], pattern: re.Pattern[str], parameters: dict[str, str]) -> None:
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    current: list[str] = []
    found: dict[str, list[str]] = {}
    for line in filled:
        begins = pattern.fullmatch(line.strip()) if not line[indent : indent + 1].isspace() else None
        if begins is None:
            current.append(line)
            continue
        current = [begins[2]] if pattern is _GOOGLE else []
        for name in begins[1].split(","):
            found[name.strip().lstrip("*")] = current
    parameters.update({name: _one_line(text) for name, text in found.items()})


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def _joined(lines: list[str]) -> str:
    """Paragraphs, each on one line."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
