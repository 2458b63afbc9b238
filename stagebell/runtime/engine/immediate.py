"""Publishes that do not wait for the end of their turn."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_immediate: ContextVar[bool] = ContextVar("stagebell_immediate", default=False)


@contextmanager
def immediate() -> Generator[None, None, None]:
    """Publishes inside this block leave at once instead of with the turn's commit.

    For live streams: such a message is delivered at least once, and also when the turn fails or is run again.
    """
    token = _immediate.set(True)
    try:
        yield
    finally:
        _immediate.reset(token)


def is_immediate() -> bool:
    """True inside an `immediate` block."""
    return _immediate.get()
