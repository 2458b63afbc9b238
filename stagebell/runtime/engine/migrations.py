"""The form of an agent class's states: their type, their version, and the way from older versions to it.

A state is stored with the type and the version of the class that wrote it. A class reads states of its own type and
version; those of an older version go through its migrations, one version at a time:

    version 1 ──@migrates(from_version=1)──▶ version 2 ──@migrates(from_version=2)──▶ version 3, what load_state takes
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from autogen_core import AgentId

from stagebell.errors import MigrationError, StateMismatch
from stagebell.runtime.engine.options import check_version, options_of

Migration = Callable[[Mapping[str, Any]], object]  # a state again, if it is right: it is the user's code
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_MARK = "__stagebell_migrates__"


def migrates(*, from_version: int) -> Callable[[Decorated], Decorated]:
    """Mark a static method of an agent class that turns a state of one version into one of the next.

    Args:
        from_version: the version of the state it takes; it returns the state as version `from_version + 1` has it.

    Returns:
        The decorator; it returns the method it was given. It may stand above or below `@staticmethod`.

    Raises:
        ValueError: the version is not a whole number from 1 on.
    """
    check_version(from_version, "from_version")

    def mark(method: Decorated) -> Decorated:
        setattr(getattr(method, "__func__", method), _MARK, from_version)
        return method

    return mark


class StoredState(NamedTuple):
    """A state as it was stored, with the type and the version of the class that wrote it."""

    type: str
    version: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StateForm:
    """What an agent class calls its states, and how it reads older ones; `migrations` are by the version they take."""

    type: str
    version: int
    migrations: Mapping[int, Migration]

    def read(self, agent: AgentId | str, stored: StoredState) -> Mapping[str, Any]:
        """A stored state as this class has it.

        Raises:
            StateMismatch: it is of another type or a newer version, or no migrations lead from its version to this one.
        """
        if stored.type == self.type and stored.version == self.version:
            return stored.state
        if stored.type != self.type:
            raise self._mismatch(
                agent,
                stored,
                f'load it with its own class, or name its type: @agent_options(state_type="{stored.type}")',
            )
        if stored.version > self.version:
            raise self._mismatch(agent, stored, "a newer program wrote it, upgrade this one")
        state = stored.state
        for version in range(stored.version, self.version):
            state = self._step(agent, stored, version, state)
        return state

    def _step(
        self, agent: AgentId | str, stored: StoredState, version: int, state: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        migration = self.migrations.get(version)
        if migration is None:
            raise self._mismatch(agent, stored, f"add a migration: @migrates(from_version={version})")
        try:
            changed = migration(state)
        except Exception as error:
            reason = f"its migration from version {version} raised {type(error).__name__}: {error}"
            raise self._mismatch(agent, stored, reason) from error
        if not isinstance(changed, Mapping):
            reason = (
                f"its migration from version {version} returned a {type(changed).__name__}, let it return a mapping"
            )
            raise self._mismatch(agent, stored, reason)
        return cast("Mapping[str, Any]", changed)

    def _mismatch(self, agent: AgentId | str, stored: StoredState, reason: str) -> StateMismatch:
        return StateMismatch(agent, (stored.type, stored.version), (self.type, self.version), reason)


def state_form(cls: type) -> StateForm:
    """The form of a class's states.

    Raises:
        MigrationError: two of its migrations take one version, one takes the class's version or a newer one, one is
            missing between two others or before the class's version, or one takes other arguments than a state.
    """
    options = options_of(cls)
    migrations: dict[int, Migration] = {}
    names: dict[int, str] = {}
    for name, version in _marked(cls):
        if version in names:
            raise MigrationError(cls, f"{names[version]} and {name} both migrate from version {version}, keep one")
        if version >= options.state_version:
            reason = f"{name} migrates from version {version}, but states of this class have version"
            raise MigrationError(cls, f"{reason} {options.state_version}: raise state_version, or remove it")
        names[version] = name
        migrations[version] = _function(cls, name)
    if migrations:
        missing = set(range(min(migrations), options.state_version)) - migrations.keys()
        if missing:
            first = min(missing)
            raise MigrationError(cls, f"nothing leads from version {first} to {first + 1}: add the migration between")
    return StateForm(options.state_type or cls.__name__, options.state_version, migrations)


def _marked(cls: type) -> Iterator[tuple[str, int]]:
    """The migrations of a class and of its bases; a name that a class sets again hides that of its bases."""
    seen: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if name in seen:
                continue
            seen.add(name)
            version = getattr(getattr(value, "__func__", value), _MARK, None) if callable(value) else None
            if isinstance(version, int):
                yield name, version


def _function(cls: type, name: str) -> Migration:
    function = getattr(cls, name)
    try:
        inspect.signature(function).bind({})
    except TypeError:
        text = f"{name} must take one argument, the state: make it a static method"
        raise MigrationError(cls, text) from None
    if inspect.iscoroutinefunction(function):
        raise MigrationError(cls, f"{name} is a coroutine function, let it be a plain one that returns the state")
    return cast("Migration", function)
