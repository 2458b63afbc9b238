"""Agents and messages that many tests use: those of the contract, and some with options."""

from __future__ import annotations

from stagebell import agent_options
from stagebell.testing.contract.agents import (
    Answer,
    Ask,
    Counting,
    Doing,
    Note,
    OnAsk,
    OnlyCalls,
    OnlyEvents,
    OnNote,
    Unknown,
    agent,
    collect,
    echo,
    host,
)

__all__ = [
    "Answer",
    "Ask",
    "Bound",
    "Counting",
    "Doing",
    "Forbidding",
    "Interleaved",
    "Note",
    "OnAsk",
    "OnNote",
    "OnlyCalls",
    "OnlyEvents",
    "Unknown",
    "agent",
    "collect",
    "echo",
    "host",
]


@agent_options(concurrency="interleaved")
class Interleaved(Doing):
    """Its turns overlap at each await."""


@agent_options(reentrancy="forbid")
class Forbidding(Doing):
    """Lets no call in that descends from its own."""


@agent_options(process_bound=True)
class Bound(Doing):
    """Lives in the process that registered it."""
