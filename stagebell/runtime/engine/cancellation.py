"""Cancellation as a tree: a token cancels the turn it was given to, and every call that turn has open.

AutoGen's token calls its callbacks while it holds its lock, from whatever thread cancels it, and never forgets one. So
each token gets one callback for good, which hops to the event loop; who depends on the token is kept here and can be
taken out again.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from autogen_core import CancellationToken

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.turn import Entry, Turn, current_turn

Dependent = Turn | Entry

_NOTHING: frozenset[type] = frozenset()
_GRACE_ON_THE_CALLERS_STACK = 0.04  # seconds


class Cancelling:
    """Cancels turns, and what they wait for.

    Args:
        grace: seconds that a cancelled handler may go on before its task is cancelled.
        withdraw: takes a message out of its mailbox; False when it does not wait there.
    """

    def __init__(self, grace: float, withdraw: Callable[[Entry], bool]) -> None:
        self._grace = grace
        self._withdraw = withdraw

    def cancel(self, dependent: Dependent) -> None:
        """Cancel a turn and every call it has open; after the grace its task, when it has not ended."""
        # Without recursion: chains of calls can be longer than the interpreter's stack.
        stack: list[Dependent] = [dependent]
        while stack:
            dependent = stack.pop()
            target = dependent if isinstance(dependent, Turn) else dependent.turn
            if target is not None:
                stack.extend(self._cancel_alone(target))
            elif isinstance(dependent, Entry):
                self._withdraw(dependent)
                if dependent.reply is not None and not dependent.reply.done():
                    dependent.reply.cancel()

    def interrupt(self, activation: Activation, entry: Entry) -> None:
        """A message has come: cancel what it ends, if its class asks for that; see `options.agent_options`."""
        ends = activation.hosted.interrupted_by.get(entry.message.__class__, _NOTHING)
        if ends:
            for waiting in [each for each in activation.mailbox or () if type(each.message) in ends]:
                waiting.receipt.interrupt(entry) if waiting.receipt is not None else self.cancel(waiting)
        if activation.top is None:
            return
        root = activation.open_turns()[-1]
        if ends is not None and root.handles not in ends:
            return
        if root.receipt is not None:
            root.receipt.interrupt(entry)
        elif not (entry.parent is not None and entry.parent.descends_from(root)) and not _speaks(activation):
            self.cancel(root)

    def expire(self, dependent: Dependent) -> None:
        """The same, because its deadline is over."""
        if isinstance(dependent, Entry) and self._withdraw(dependent):
            return
        turn = dependent if isinstance(dependent, Turn) else dependent.turn
        if turn is not None:
            turn.expired = not turn.cancelled
            self.cancel(turn)

    def _cancel_alone(self, turn: Turn) -> Sequence[Dependent]:
        if turn.cancelled or turn.closed:
            return ()
        turn.cancelled = True
        if not turn.cancellation_token.is_cancelled():
            turn.cancellation_token.cancel()
        if turn.reply is not None and not turn.reply.done():
            turn.reply.cancel()
        if turn.receipt is not None:
            turn.receipt.cancelled()
        parent = turn.parent
        if parent is None or not (parent.cancelled and parent.task is turn.task):
            # A call that was queued is answered above; one that runs on its caller's stack holds the caller.
            grace = min(self._grace, _GRACE_ON_THE_CALLERS_STACK) if turn.inline else self._grace
            get_running_loop().call_later(grace, _interrupt, turn)
        return list(turn.calls or ())


def _speaks(activation: Activation) -> bool:
    """True when it is a turn of this agent whose code is running: it says something to itself, for later."""
    turn = current_turn.get()
    return turn is not None and not turn.closed and turn.activation is activation


def _interrupt(turn: Turn) -> None:
    if not turn.closed and turn.task is not None and not turn.task.done():
        turn.interrupting = True
        turn.task.cancel()


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
