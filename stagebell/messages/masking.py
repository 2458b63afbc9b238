"""Take secrets out of what people are shown: trajectories, logs, pages. What is stored stays as it is.

What counts as a secret: the value of a field whose name says so (`password`, `api_key`, `authorization`, …), and in
any text a password in a URL, a bearer or basic credential, a JSON web token, and keys of the forms that well-known
services hand out. It errs on the side of hiding; it is no proof that a text holds no secret.
"""

from __future__ import annotations

import json
import re
from typing import Final

from pydantic import JsonValue

MASK: Final = "***"

_NAMES: Final = re.compile(
    r"pass(word|wd|phrase)?|pwd|secret|token|credentials?|authorization|cookie|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|client[_-]?secret|session[_-]?id|dsn|connection[_-]?string",
    re.IGNORECASE,
)
_COUNTS: Final = re.compile(
    r"(tokens|_tokens?_(count|used|limit)|(prompt|completion|max|total)_tokens?)$", re.IGNORECASE
)
_TEXTS: Final = (
    (re.compile(r"(?P<kept>\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/@\"']+(?=@)", re.IGNORECASE), r"\g<kept>" + MASK),
    (re.compile(r"(?P<kept>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), r"\g<kept>" + MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), MASK),
    (re.compile(r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs])[-_][A-Za-z0-9_-]{12,}"), MASK),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MASK),
    (
        re.compile(
            r"(?P<kept>\b(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|token)\b\"?\s*[=:]\s*\"?)[^\s\"',;&]{4,}",
            re.IGNORECASE,
        ),
        r"\g<kept>" + MASK,
    ),
)


def mask_text(text: str) -> str:
    """A text without the secrets in it; JSON text is looked through field by field."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        try:
            found: JsonValue = json.loads(stripped)
        except (ValueError, RecursionError):
            found = None
        if found is not None:
            masked = mask(found)
            return text if masked == found else json.dumps(masked, ensure_ascii=False)
    return _mask_plain(text)


def mask(value: JsonValue) -> JsonValue:
    """JSON data without the secrets in it."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, list):
        return [mask(item) for item in value]
    if isinstance(value, dict):
        return {name: _mask_field(name, item) for name, item in value.items()}
    return value


def _mask_field(name: str, value: JsonValue) -> JsonValue:
    if value in (None, "", {}, []) or isinstance(value, bool):
        return value
    if _NAMES.search(name) and not _COUNTS.search(name):
        return MASK
    return mask(value)


def _mask_plain(text: str) -> str:
    for pattern, replacement in _TEXTS:
        text = pattern.sub(replacement, text)
    return text
