"""A dry run over all stored states of a namespace: would the agents of this program load them?

It hosts nothing, takes no partition and writes nothing. Each state goes the way that it goes in a worker: it is
decoded, migrated, and loaded into a new instance, which is then closed and forgotten. States are read a few at a time,
so memory stays within bounds however many there are. Agents may be at work meanwhile: a state is then seen before or
after a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from autogen_core import Agent, AgentId

from stagebell.errors import MalformedState, ServerError, ServerRefused
from stagebell.runtime.engine.catalog import Catalog, HostedType
from stagebell.runtime.engine.migrations import StateForm, state_form
from stagebell.runtime.engine.options import saves_state
from stagebell.runtime.engine.retiring import close_logged
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Ask, Link
from stagebell.runtime.redis.wire import decode_state

_AT_ONCE = 32
_MOST_FAILURES = 5


@dataclass(frozen=True, slots=True)
class StateFailure:
    """A stored state that would not be loaded, and why."""

    agent: str
    error: str


@dataclass(slots=True)
class TypeReport:
    """The states of one agent type.

    Attributes:
        name: the agent type.
        has_factory: False when this program does not host the type: its states are counted and nothing more.
        reads: type and version of the states that its classes write and read, such as "Counter 2".
        stored: how many states there are.
        current: how many were loaded as they are.
        migrated: how many were loaded after migrations.
        failing: how many were not loaded.
        failures: the first of those.
    """

    name: str
    has_factory: bool
    reads: list[str] = field(default_factory=list[str])
    stored: int = 0
    current: int = 0
    migrated: int = 0
    failing: int = 0
    failures: list[StateFailure] = field(default_factory=list[StateFailure])

    @property
    def checked(self) -> int:
        """How many states were tried."""
        return self.current + self.migrated + self.failing

    def fail(self, agent: AgentId | str, error: Exception) -> None:
        """Count a state that was not loaded."""
        self.failing += 1
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(StateFailure(str(agent), f"{type(error).__name__}: {error}"))


@dataclass(frozen=True, slots=True)
class StateReport:
    """The outcome of a dry run."""

    namespace: str
    types: list[TypeReport]

    @property
    def failing(self) -> int:
        """How many states would not be loaded."""
        return sum(each.failing for each in self.types)

    @property
    def checked(self) -> int:
        """How many states were tried."""
        return sum(each.checked for each in self.types)


async def dry_run(url: str, namespace: str, catalog: Catalog, *, limit: int | None = None) -> StateReport:
    """Try to load every stored state.

    Args:
        url: of the server.
        namespace: whose states.
        catalog: the agent types of this program.
        limit: the most states to try of each agent type; None for all.

    Raises:
        ServerUnavailable: the server cannot be reached.
        ServerRefused: it refused the credentials or the commands.
    """
    link = Link(url, namespace, "stagebell-state-check")
    await link.open()
    try:
        directory = Directory(link, namespace, partitions=1)
        await directory.refresh()
        names = sorted(directory.types.keys() | catalog.types.keys())
        return StateReport(namespace, [await _TypeCheck(link, directory, catalog, name).run(limit) for name in names])
    finally:
        await link.close()


class _TypeCheck:
    """The dry run of one agent type."""

    def __init__(self, link: Link, directory: Directory, catalog: Catalog, name: str) -> None:
        entry = directory.types.get(name)
        count = entry.partitions if entry is not None and not entry.worker else 0
        self._link = link
        self._catalog = catalog
        self._partitions = [directory.partition(name, number) for number in range(count)]
        self._hosted = catalog.types.get(name)
        self._forms: dict[type, StateForm] = {}
        self._report = TypeReport(name, has_factory=self._hosted is not None)

    async def run(self, limit: int | None) -> TypeReport:
        """Count the states, and try them when there is a factory for their agents."""
        report, hosted = self._report, self._hosted
        report.stored = sum([await self._link.ask("SCARD", keys.ids) for keys in self._partitions])
        if hosted is None:
            return report
        async for agent, data in self._states():
            if limit is not None and report.checked >= limit:
                break
            if isinstance(data, Exception):
                report.fail(agent, data)
            elif data:  # an agent has none when its state was deleted meanwhile
                await self._try(hosted, AgentId.from_str(agent), data)
        forms = self._forms.values() if self._forms or hosted.state_form is None else [hosted.state_form]
        report.reads = sorted({f"{form.type} {form.version}" for form in forms})
        return report

    async def _states(self) -> AsyncIterator[tuple[str, bytes | Exception]]:
        for keys in self._partitions:
            cursor = b"0"
            while True:
                cursor, names = await self._link.ask("SSCAN", keys.ids, cursor, "COUNT", _AT_ONCE)
                for start in range(0, len(names), _AT_ONCE):  # of a small set the server gives all at once
                    agents = [name.decode("utf-8", "backslashreplace") for name in names[start : start + _AT_ONCE]]
                    found = await asyncio.gather(*(self._read(keys, agent) for agent in agents))
                    for each in zip(agents, found, strict=True):
                        yield each
                if cursor == b"0":
                    break

    async def _read(self, keys: LeasedKeys, agent: str) -> bytes | Exception:
        """The state of an agent, or why it cannot be read."""
        try:
            _, data = await self._link.submit(_state(keys.state(AgentId.from_str(agent).key)))
        except ServerRefused as error:
            if error.code == "WRONGTYPE":
                return error
            raise
        except ValueError as error:  # no agent's name, or no number where the version is
            return error
        return data

    async def _try(self, hosted: HostedType, id: AgentId, data: bytes) -> None:
        report, agent = self._report, None
        try:
            stored = decode_state(id, data)
            agent = await self._catalog.make(hosted, id)
            form = self._form(hosted, id, agent)
            state = form.read(id, stored)
            await agent.load_state(state)
        except ServerError:
            raise
        except Exception as error:  # the factory, the migrations and load_state are the user's code
            report.fail(id, error)
        else:
            if stored.version == form.version:
                report.current += 1
            else:
                report.migrated += 1
        if agent is not None:
            await close_logged(id, agent)

    def _form(self, hosted: HostedType, id: AgentId, agent: Agent) -> StateForm:
        cls = type(agent)
        if hosted.process_bound or not saves_state(cls):
            why = "is bound to a process" if hosted.process_bound else "has no save_state of its own"
            raise MalformedState(id, f"{cls.__name__} {why}, so what is stored would never be loaded")
        form = self._forms.get(cls)
        if form is None:
            form = self._forms[cls] = state_form(cls)
        return form


def _state(key: str) -> Ask[tuple[int, bytes]]:
    return lambda scripts: scripts.state(key)
