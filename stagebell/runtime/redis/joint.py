"""Requests to one script that leave as one command.

They run one after the other, each as if it had come alone (see `lua/lib/each.lua`), and each gets its own part of the
answer. A command costs the server as much as a small script; so do its bells, of which a command rings one.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from stagebell.errors import ServerRefused

Arg = str | bytes | int
Parse = Callable[[Any], Any]

MOST = 64
"""Requests in one command. The server's caches are cold when a command comes, so more of them cost less each; but
everybody else waits until the last one is done."""
MOST_BYTES = 256 * 1024
"""What the messages and states of one command may weigh together; a single larger one leaves alone."""


class Sink(Protocol):
    """Takes a reply; a future is one."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Request(NamedTuple):
    """What one of them asks, and who gets the answer."""

    sink: Sink
    parse: Parse
    keys: Sequence[Arg]
    arguments: Sequence[Arg]
    weight: int


class Joint:
    """Requests to the script `sha` that wait to leave together; a sink itself."""

    __slots__ = ("command", "requests", "sha", "weight")

    def __init__(self, sha: str) -> None:
        self.sha = sha
        self.requests: list[Request] = []
        self.command: list[Arg] = []
        self.weight = 0

    def takes(self, sha: str, weight: int) -> bool:
        """Whether a request of this weight, to this script, may join."""
        return self.sha == sha and self.weight + weight <= MOST_BYTES

    def join(self, request: Request) -> bool:
        """Let it leave with the others; True when no more may join."""
        self.requests.append(request)
        self.weight += request.weight
        return len(self.requests) >= MOST

    def close(self) -> tuple[Arg, ...]:
        """No more may join: the command."""
        keys: list[Arg] = []
        arguments: list[Arg] = []
        for _, _, own_keys, own_arguments, _ in self.requests:
            keys += own_keys
            arguments += (len(own_keys), len(own_arguments))
            arguments += own_arguments
        self.command += ("EVALSHA", self.sha, len(keys), *keys, *arguments)
        return tuple(self.command)

    def done(self) -> bool:
        """Somebody waits for a part of the answer, as far as this knows."""
        return False

    def set_result(self, answers: Sequence[Any] | bytes | int | None, /) -> None:
        """Each takes its part."""
        if isinstance(answers, str | bytes | int | None) or len(answers) != len(self.requests):
            self.set_exception(ServerRefused(f"ERR {len(self.requests)} requests were answered with {answers!r:.200}"))
            return
        for (sink, parse, *_), answer in zip(self.requests, answers, strict=True):
            if not sink.done():
                settle(sink, parse, answer)

    def set_exception(self, error: BaseException, /) -> None:
        """Each gets an error of its own: a shared one would collect the tracebacks of all."""
        for sink, *_ in self.requests:
            if not sink.done():
                own = ServerRefused(str(error), code=error.code) if isinstance(error, ServerRefused) else None
                sink.set_exception(own or type(error)(str(error)))
                if isinstance(sink, Future):
                    sink.exception()  # no warning for one that nobody awaits


def settle(sink: Sink, parse: Parse, answer: Any) -> None:
    """Read an answer and give it to the one who waits for it."""
    if type(answer) is ServerRefused:
        sink.set_exception(answer)
        return
    try:
        result = parse(answer)
    except Exception as error:
        sink.set_exception(error)
    else:
        sink.set_result(result)
