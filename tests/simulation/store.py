"""The real server under the simulation: the real scripts, but for its clock and the ids of its entries.

Scripts are rewritten on their way in: `now_ms` reads virtual time, and an entry's id comes from a counter in the
server itself, so that a server which was set back gives the same ids out again. A mutation changes one script further.
Every command is executed before `execute` returns; what blocks (XREAD) is asked again when something may have come.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import hiredis

from stagebell.runtime.redis.lua_files import SCRIPTS, SOURCES

CLOCK, IDS = b"simulation:clock", b"simulation:ids"
ADDING = frozenset(script.name for script in SCRIPTS.values() if "'XADD'" in script.source)
"""Scripts that add to streams."""

_pack: Callable[[tuple[Any, ...]], bytes] = vars(hiredis)["pack_command"]
_NEW_ID = re.compile(r"(?<=, )'\*'(?=,)")  # the id in an XADD
_TIME = "local t = redis.call('TIME')\n  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)"


class Refused(Exception):
    """The server's answer is an error."""


def rewritten(source: str) -> str:
    """A script as the simulation runs it."""
    source = source.replace(_TIME, f"return tonumber(redis.call('GET', '{CLOCK.decode()}'))")
    assert "'TIME')" not in source, "the clock of this script is not understood"
    return _NEW_ID.sub(f"(redis.call('INCR', '{IDS.decode()}') .. '-0')", source)


class Store:
    """One server at a unix socket, used by one schedule after the other."""

    def __init__(self, path: str, mutated: Mapping[str, str] | None = None) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader(replyError=Refused)
        self._shas: dict[bytes, tuple[str, bytes, bool]] = {}
        self._known: dict[bytes, bytes] = {}
        self._clock = b""
        self.now_ms = 0
        self.commands = 0
        for sha, source in SOURCES.items():
            name = next(script.name for script in SCRIPTS.values() if script.sha == sha)
            text = rewritten((mutated or {}).get(name, source))
            loaded: bytes = self.ask(("SCRIPT", "LOAD", text))[0]
            self._shas[sha.encode()] = name, loaded, CLOCK.decode() in text
            self._known[source.encode()] = sha.encode()

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def reset(self) -> None:
        """An empty server."""
        self.ask(("FLUSHALL",))
        self._clock = b""

    def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Execute commands as they are; errors are returned."""
        self._socket.sendall(b"".join([_pack(command) for command in commands]))
        reader, answers = self._reader, []
        while len(answers) < len(commands):
            answer = reader.gets()
            if answer is False:
                data = self._socket.recv(262_144)
                assert data, "the server has ended"
                reader.feed(data)
            else:
                answers.append(answer)
        self.commands += len(commands)
        return answers

    # -- what simulated processes send

    def name_of(self, command: Sequence[bytes]) -> str:
        """The script's name, or the command's."""
        word = command[0]
        if word in (b"EVALSHA", b"EVAL"):
            sha = command[1] if word == b"EVALSHA" else self._known[command[1]]
            return self._shas[sha][0]
        return word.decode()

    def execute(self, command: Sequence[bytes]) -> Any:
        """The answer to a command that does not block; errors are returned."""
        match command[0]:
            case b"EVALSHA" | b"EVAL":
                return self._script(command)
            case b"SCRIPT":
                return self._known[command[2]]
            case b"TIME":
                return [b"%d" % (self.now_ms // 1000), b"%d" % (self.now_ms % 1000 * 1000)]
            case b"PING" | b"CLIENT" | b"AUTH" | b"SELECT":
                return b"OK"
            case b"XADD" if b"*" in command:
                id = b"%d-0" % self.ask(("INCR", IDS))[0]
                return self.ask(tuple(id if part == b"*" else part for part in command))[0]
            case _:
                return self.ask(tuple(command))[0]

    def _script(self, command: Sequence[bytes]) -> Any:
        name, sha, timed = self._shas[command[1] if command[0] == b"EVALSHA" else self._known[command[1]]]
        if name == "probe":
            return []
        asked = (b"EVALSHA", sha, *command[2:])
        clock = b"%d" % self.now_ms
        if timed and clock != self._clock:
            self._clock = clock
            return self.ask((b"SET", CLOCK, clock), asked)[1]
        return self.ask(asked)[0]

    def read(self, *commands: Sequence[bytes]) -> list[Any]:
        """What each of these blocking XREADs would find now."""
        at = [command.index(b"BLOCK") for command in commands]
        return self.ask(*((*command[:i], *command[i + 2 :]) for command, i in zip(commands, at, strict=True)))

    # -- loss of writes

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """Everything that is in the server."""
        keys: list[bytes] = self.ask(("KEYS", "*"))[0]
        return list(zip(keys, self.ask(*(("DUMP", key) for key in keys)), strict=True)) if keys else []

    def restore(self, snapshot: list[tuple[bytes, bytes]]) -> None:
        """Everything since the snapshot is lost."""
        self.ask(("FLUSHALL",), *(("RESTORE", key, 0, dump) for key, dump in snapshot))
        self._clock = b""
