"""What every typed face of a script stands on: the connection, and the ids of the scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.joint import Arg, Parse, Request, Sink
from stagebell.runtime.redis.keys import NamespaceKeys
from stagebell.runtime.redis.lua_files import SCRIPTS, SOURCES

SHA = {name: script.sha for name, script in SCRIPTS.items()}


class ScriptCalls:
    """Runs scripts on one connection, for one namespace."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.keys = NamespaceKeys(namespace)
        self._connection = connection
        self._sink: Sink | None = None
        connection.on_noscript = with_source

    def into(self, sink: Sink, ask: Callable[[Self], object]) -> None:
        """Let `ask` call one script, whose answer then goes straight into `sink` instead of into a future."""
        self._sink = sink
        try:
            ask(self)
        finally:
            self._sink = None

    def run(self, parse: Parse, *args: Arg) -> asyncio.Future[Any]:
        if self._sink is not None:
            self._connection.execute_into(self._sink, parse, *args)
            return _NOBODY
        return self._connection.execute_parsed(parse, *args)

    def run_jointly(
        self, name: str, parse: Parse, keys: Sequence[Arg], arguments: Sequence[Arg], weight: int
    ) -> asyncio.Future[Any]:
        """As `run`, of a script that takes several requests at once: together with those that leave with this one.

        Args:
            weight: bytes of the messages and states among the arguments.
        """
        if self._sink is not None:
            self._connection.execute_jointly(SHA[name], Request(self._sink, parse, keys, arguments, weight))
            return _NOBODY
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._connection.execute_jointly(SHA[name], Request(answer, parse, keys, arguments, weight))
        return answer

    async def load(self) -> None:
        """Give the server all scripts; once after each opening of a connection.

        Raises:
            ServerUnavailable: the connection ended.
            ServerRefused: the server takes no scripts.
        """
        await asyncio.gather(*(self._connection.execute("SCRIPT", "LOAD", s.source) for s in SCRIPTS.values()))


# What a script that answers into a sink returns to `ask`, which has no use for it.
_NOBODY = cast("asyncio.Future[Any]", None)


def with_source(args: tuple[Arg, ...]) -> tuple[Arg, ...]:
    """The EVAL for an EVALSHA whose script the server does not know."""
    return ("EVAL", SOURCES[str(args[1])], *args[2:])


def version_arg(version: int | None) -> Arg:
    """A version as the scripts take it; None: do not check."""
    return "" if version is None else version


def as_is(raw: Any) -> Any:
    """An answer that needs no reading."""
    return raw
