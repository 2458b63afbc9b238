"""Other models and dependencies while a block is open, and every request that was made meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from autogen_core.models import ChatCompletionClient

from stagebell.agents.stand_ins import UNCHANGED, Exchange, StandIn, listen, put_in, stop_listening, take_out


@contextmanager
def override(agent_type: str, *, model: ChatCompletionClient | None = None, deps: Any = UNCHANGED) -> Generator[None]:
    """Inside the block, all agents of a type in this process use another model, other dependencies, or both.

    Blocks may lie in each other or overlap in any order (tasks that run at once): of those that are open, the one that
    was opened last holds. Agents that exist already are concerned as well, from their next step on.

    Args:
        agent_type: the type under which the agents were registered.
        model: is asked instead of the agents' own; None leaves that.
        deps: is given to tools and hooks instead of what the agents' factory makes.
    """
    stand_in = StandIn(agent_type, model, deps)
    put_in(stand_in)
    try:
        yield
    finally:
        take_out(stand_in)


@contextmanager
def capture_messages() -> Generator[list[Exchange]]:
    """Inside the block, every request of an agent in this process to its model is kept, also of runs that fail.

    Yields:
        The list that grows, the oldest first; it can be read after the block.
    """
    exchanges: list[Exchange] = []
    listen(exchanges)
    try:
        yield exchanges
    finally:
        stop_listening(exchanges)
