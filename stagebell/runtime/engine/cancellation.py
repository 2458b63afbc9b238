"""Cancellation as a tree: a token cancels the turn it was given to, and every call that turn has open.

AutoGen's token calls its callbacks while it holds its lock, from whatever thread cancels it, and never forgets one. So
each token gets one callback for good, which hops to the event loop; who depends on the token is kept here and can be
taken out again.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from weakref import WeakKeyDictionary

from autogen_core import CancellationToken

from stagebell.runtime.engine.turn import Entry, Turn

Dependent = Turn | Entry


class TokenLinks:
    """Which turns and waiting messages depend on which token."""

    def __init__(self, cancel: Callable[[Dependent], None]) -> None:
        self._cancel = cancel
        self._dependents: WeakKeyDictionary[CancellationToken, dict[int, Dependent]] = WeakKeyDictionary()

    def link(self, loop: AbstractEventLoop, token: CancellationToken, dependent: Dependent) -> None:
        """Cancel `dependent` when `token` is cancelled (soon, on `loop`)."""
        dependents = self._dependents.get(token)
        if dependents is None:
            self._dependents[token] = dependents = self._watch(loop, token)
        dependents[id(dependent)] = dependent
        if token.is_cancelled():  # its one callback may have gone off before
            loop.call_soon(self._fire, dependents)

    def unlink(self, token: CancellationToken, dependent: Dependent) -> None:
        """`dependent` has ended."""
        dependents = self._dependents.get(token)
        if dependents is not None:
            dependents.pop(id(dependent), None)

    def _watch(self, loop: AbstractEventLoop, token: CancellationToken) -> dict[int, Dependent]:
        dependents: dict[int, Dependent] = {}
        token.add_callback(lambda: _hop(loop, self._fire, dependents))
        return dependents

    def _fire(self, dependents: dict[int, Dependent]) -> None:
        for dependent in list(dependents.values()):
            self._cancel(dependent)


def _hop(
    loop: AbstractEventLoop,
    fire: Callable[[dict[int, Dependent]], None],
    dependents: dict[int, Dependent],
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(fire, dependents)
