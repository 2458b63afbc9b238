"""The Lua scripts as the server gets them: read from `lua/`, includes put in, named by their hash."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

_INCLUDE = re.compile(r"^--@include (\w+)\n", re.MULTILINE)
_EACH = "--@each\n"
_LUA = files("stagebell.runtime.redis") / "lua"

NAMES = (
    "acquire",
    "absent",
    "beat",
    "begin",
    "break_hold",
    "drop_hold",
    "call",
    "claim_type",
    "commit",
    "due",
    "end_call",
    "fail",
    "fanout",
    "gone",
    "idle",
    "probe",
    "promote",
    "record",
    "register",
    "release",
    "renew",
    "requeue",
    "requeue_event",
    "ring",
    "retry",
    "schedule",
    "send",
    "unschedule",
    "upcoming",
    "withdraw",
)


@dataclass(frozen=True, slots=True)
class Script:
    """One script; with a synchronous client: `client.script_load(s.source)`, `client.evalsha(s.sha, n, …)`.

    `text` is the file as it stands, `source` what the server gets, `sha` how EVALSHA calls it. A script that is `joint`
    takes several requests with one command, see `lua/lib/each.lua`.
    """

    name: str
    text: str
    source: str
    sha: str
    joint: bool


def _read(name: str) -> Script:
    text = (_LUA / f"{name}.lua").read_text("utf-8")
    source = _INCLUDE.sub(lambda m: _library(m[1]), text)
    head, joint, body = source.partition(_EACH)
    if joint:
        source = head + _library("each").replace("--@body\n", body)
    return Script(name, text, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), bool(joint))


def _library(name: str) -> str:
    return (_LUA / "lib" / f"{name}.lua").read_text("utf-8")


SCRIPTS: dict[str, Script] = {name: _read(name) for name in NAMES}
SOURCES: dict[str, str] = {script.sha: script.source for script in SCRIPTS.values()}
