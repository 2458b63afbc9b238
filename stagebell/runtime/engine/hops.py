"""Hops: how many messages, one leading to the next, may still follow; handed down from each message to the next.

A call and a publish are one hop each. The number is kept in the context of the running code, so that each handler finds
one less than the code that sent its message, in whatever process it runs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context

from stagebell.errors import HopLimitExceeded

_left: ContextVar[int | None] = ContextVar("stagebell_hops", default=None)


@contextmanager
def hop_limit(hops: int) -> Generator[None, None, None]:
    """Messages sent inside this block lead to further ones over at most `hops` hops in all.

    A message that would be one more ends in `HopLimitExceeded` where it is sent: agents that publish to each other
    without end are stopped by it. Of several blocks, and of what the message that is being handled has left, the
    smallest number counts.

    Args:
        hops: 1 lets messages out whose handlers may send none.

    Raises:
        ValueError: it is less than 1.
    """
    if hops < 1:
        raise ValueError(f"a hop limit must be at least 1, got {hops}")
    outer = _left.get()
    token = _left.set(hops if outer is None else min(hops, outer))
    try:
        yield
    finally:
        _left.reset(token)


def hops_left() -> int | None:
    """How many hops the running code has left, None without a limit."""
    return _left.get()


def next_hop(recipient: object) -> int | None:
    """How many hops are left for the handler of a message that leaves now; None without a limit.

    Raises:
        HopLimitExceeded: the message itself would be one too many.
    """
    left = _left.get()
    if left is None:
        return None
    if left < 1:
        raise HopLimitExceeded(str(recipient))
    return left - 1


def context_for(hops: int | None) -> Context:
    """A copy of the present context for the handler of a message that leaves now."""
    context = copy_context()
    if hops is not None:
        context.run(_left.set, hops)
    return context


def fresh_context(hops: int) -> Context:
    """A context with nothing in it but the hops that code in it has left."""
    context = Context()
    context.run(_left.set, hops)
    return context
