"""What the tools of an agent work with: made on the worker, for a run, and never part of a message or a state."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, cast

from stagebell.agents.context import Deps
from stagebell.agents.stand_ins import UNCHANGED, deps_for

Factory: TypeAlias = Callable[[str], Deps | Awaitable[Deps]]
"""Makes the dependencies for a task with this `deps_key`."""


class Dependencies(Generic[Deps]):
    """The dependencies of an agent's runs.

    Args:
        factory: makes them; without one they are None.
    """

    def __init__(self, factory: Factory[Deps] | None) -> None:
        self._factory = factory
        self._made: tuple[str, Deps] | None = None

    async def of(self, agent_type: str, run_id: str, deps_key: str) -> Deps:
        """Those of a run: made once for it on each worker; what stands in for them in a test, if anything does.

        Raises:
            Exception: whatever the factory raised.
        """
        stand_in = deps_for(agent_type)
        if stand_in is not UNCHANGED:
            return cast("Deps", stand_in)
        if self._factory is None:
            return cast("Deps", None)
        if self._made is not None and self._made[0] == run_id:
            return self._made[1]
        made = self._factory(deps_key)
        deps = cast("Deps", await made if inspect.isawaitable(made) else made)
        self._made = run_id, deps
        return deps

    def forget(self) -> None:
        """The run has ended."""
        self._made = None
