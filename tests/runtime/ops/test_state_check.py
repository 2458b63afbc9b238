"""`stagebell state check`: would the new program load what is stored? It tries, and writes nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import redis
from autogen_core import AgentRuntime

from stagebell import RedisRuntime, agent_options
from stagebell.messages.ids import partition_of
from stagebell.runtime.ops.setups import Setup
from stagebell.runtime.ops.state_check import check_states
from stagebell.runtime.redis.dry_run import StateReport, TypeReport
from stagebell.runtime.redis.keys import NamespaceKeys, PartitionKeys
from tests.runtime.ops.commands import Shell
from tests.support.agents import Ask, Counting, OnlyCalls, agent
from tests.support.tills import Till, Till2

pytestmark = pytest.mark.integration

MODULE = """
from tests.support.agents import Counting
from tests.support.tills import Till, Till2

async def old(runtime) -> None:
    await Till.register(runtime, "till", Till)
    await Counting.register(runtime, "counter", Counting)

async def new(runtime) -> None:
    await Till2.register(runtime, "till", Till2)

async def nothing(runtime) -> None:
    pass

async def fails(runtime) -> None:
    raise ValueError("the till is empty")
"""


class Stock:
    """The stored states of one namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self.client: Any = redis.Redis.from_url(url)

    async def sell(self, *keys: str, counters: int = 0) -> None:
        """Let a worker of the first version store states."""
        runtime = RedisRuntime(self.url, namespace=self.namespace)
        await Till.register(runtime, "till", Till)
        await Counting.register(runtime, "counter", Counting)
        async with runtime:
            for key in keys:
                await runtime.send_message(Ask(number=3), agent("till", key))
            for number in range(counters):
                await runtime.send_message(Ask(), agent("counter", str(number)))

    def put(self, key: str, data: str, kind: str = "till") -> None:
        """Store a state by hand."""
        self.client.hsetnx(NamespaceKeys(self.namespace).reg, f"t:{kind}", '{"p": 16}')
        keys = PartitionKeys(self.namespace, kind, partition_of(f"{kind}/{key}", 16))
        self.client.hset(keys.state(key), mapping={"v": 1, "d": data})
        self.client.sadd(keys.ids, f"{kind}/{key}")

    def everything(self) -> dict[bytes, bytes]:
        """All keys of the namespace with what is in them."""
        names = sorted(self.client.scan_iter(f"sb:{{{self.namespace}*", count=1000))
        return {name: self.client.dump(name) for name in names}

    async def check(self, setup: Setup, **options: Any) -> StateReport:
        return await check_states(setup, self.url, namespace=self.namespace, **options)


@pytest.fixture
def stock(locked_url: str, namespace: str) -> Iterator[Stock]:
    stock = Stock(locked_url, namespace)
    yield stock
    for name in stock.everything():
        stock.client.delete(name)
    stock.client.close()


def hosting(cls: type[Any], name: str = "till") -> Setup:
    async def setup(runtime: AgentRuntime) -> None:
        await cls.register(runtime, name, cls)

    return setup


def only(report: StateReport, name: str = "till") -> TypeReport:
    (found,) = (each for each in report.types if each.name == name)
    return found


def counts(report: TypeReport) -> tuple[int, int, int, int]:
    return report.stored, report.current, report.migrated, report.failing


STATE = '{"type":"Till","version":2,"state":{"cents":5}}'


async def test_states_that_are_current_migrated_and_failing_are_counted(stock: Stock) -> None:
    await stock.sell("a", "b", "c", counters=2)
    stock.put("new", STATE)
    stock.put("newer", STATE.replace("2", "3"))
    stock.put("other", STATE.replace("Till", "Shelf"))
    stock.put("no header", '{"cents":5}')
    before = stock.everything()
    report = await stock.check(hosting(Till2))
    assert stock.everything() == before
    till, counter = only(report), only(report, "counter")
    assert (till.reads, *counts(till)) == (["Till 2"], 7, 1, 3, 3)
    assert {failure.agent for failure in till.failures} == {"till/newer", "till/other", "till/no header"}
    assert (counter.has_factory, *counts(counter)) == (False, 2, 0, 0, 0)
    assert (report.failing, report.checked) == (3, 7)


async def test_a_namespace_without_states(stock: Stock) -> None:
    report = await stock.check(hosting(Till2))
    assert (only(report).reads, *counts(only(report))) == (["Till 2"], 0, 0, 0, 0)
    assert stock.everything() == {}


async def test_no_more_are_tried_than_asked_for(stock: Stock) -> None:
    await stock.sell("a", "b", "c", "d", counters=3)

    async def both(runtime: AgentRuntime) -> None:
        await Till2.register(runtime, "till", Till2)
        await Counting.register(runtime, "counter", Counting)

    report = await stock.check(both, limit=2)
    assert counts(only(report)) == (4, 0, 2, 0)
    assert counts(only(report, "counter")) == (3, 2, 0, 0)


async def test_many_states_are_tried_with_few_agents_in_memory(stock: Stock) -> None:
    alive: weakref.WeakSet[Till2] = weakref.WeakSet()
    most = 0

    @agent_options(state_version=2, state_type="Till")
    class Watched(Till2):
        def __init__(self) -> None:
            nonlocal most
            super().__init__()
            alive.add(self)
            most = max(most, len(alive))

    total, bad = 400, 9
    stock.client.hset(NamespaceKeys(stock.namespace).reg, "t:till", '{"p": 1}')
    keys = PartitionKeys(stock.namespace, "till", 0)
    pipe = stock.client.pipeline()
    for number in range(total):
        pipe.hset(keys.state(f"{number}"), mapping={"v": 1, "d": STATE if number >= bad else "{}"})
        pipe.sadd(keys.ids, f"till/{number}")
    pipe.execute()
    gc.disable()
    try:
        report = await stock.check(hosting(Watched))
    finally:
        gc.enable()
    assert counts(only(report)) == (total, total - bad, 0, bad)
    assert len(only(report).failures) == 5
    assert most < 100


class Closed(Till2):
    """Counts how often it was closed."""

    closed = 0

    async def close(self) -> None:
        Closed.closed += 1
        raise OSError("already gone")


async def test_agents_that_were_made_are_closed(stock: Stock) -> None:
    stock.put("a", STATE.replace("Till", "Closed"))
    stock.put("b", STATE)
    Closed.closed = 0
    options = agent_options(state_version=2)
    report = await stock.check(hosting(options(Closed)))
    assert counts(only(report)) == (2, 1, 0, 1)
    assert Closed.closed == 2


class Refusing(Till2):
    """Takes no state."""

    async def load_state(self, state: Mapping[str, Any]) -> None:
        raise KeyError("cents")


class Broken(Till2):
    """Cannot be made."""

    def __init__(self) -> None:
        raise OSError("no such shop")


class Forgetful(OnlyCalls):
    """Keeps no state any more."""


@agent_options(process_bound=True)
class Bound(Till):
    """Lives in one process."""


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Refusing, "KeyError: 'cents'"),
        (Broken, "OSError: no such shop"),
        (Forgetful, "Forgetful has no save_state of its own, so what is stored would never be loaded"),
        (Bound, "Bound is bound to a process, so what is stored would never be loaded"),
    ],
)
async def test_what_fails_is_told_with_its_error(stock: Stock, cls: type[Any], text: str) -> None:
    stock.put("a", STATE)
    found = only(await stock.check(hosting(cls)))
    assert counts(found) == (1, 0, 0, 1)
    assert text in found.failures[0].error
    assert found.failures[0].agent == "till/a"


@pytest.mark.parametrize("spoil", ["state-of-a-wrong-type", "version-no-number", "no-agent"])
async def test_what_a_foreign_hand_wrote_is_one_failure(stock: Stock, spoil: str) -> None:
    stock.put("a", STATE)
    stock.put("b", STATE)
    keys = PartitionKeys(stock.namespace, "till", partition_of("till/b", 16))
    if spoil == "state-of-a-wrong-type":
        stock.client.delete(keys.state("b"))
        stock.client.set(keys.state("b"), "wrong")
    elif spoil == "version-no-number":
        stock.client.hset(keys.state("b"), "v", "many")
    else:
        stock.client.srem(keys.ids, "till/b")
        stock.client.sadd(keys.ids, b"\xff")
    assert counts(only(await stock.check(hosting(Till2)))) == (2, 1, 0, 1)


# -- the command


async def test_the_command(shell: Shell, stock: Stock) -> None:
    (shell.folder / "tills.py").write_text(MODULE)
    await stock.sell("a", "b", counters=1)
    good = shell.run("state", "check", "tills:new")
    assert (good.returncode, good.stderr) == (0, "")
    assert f"stored states of namespace {stock.namespace} at 127.0.0.1:" in good.stdout
    rows = [line.split() for line in good.stdout.splitlines()]
    assert ["till", "Till", "2", "2", "0", "2", "0"] in rows
    assert ["counter", "not", "set", "up", "here", "1", "-", "-", "-"] in rows
    assert "2 of 3 states were tried, and can be loaded" in good.stdout
    stock.put("newer", STATE)
    bad = shell.run("state", "check", "tills:old")
    assert (bad.returncode, bad.stderr) == (1, "")
    assert "till/newer: StateMismatch: the stored state of till/newer is of type 'Till' and version 2" in bad.stdout
    assert "1 of 4 states would not be loaded" in bad.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("tills:fails",), 1, "tills:fails raised ValueError: the till is empty"),
        (("tills:nothing",), 1, "tills:nothing registered no agents"),
        (("tills:gone",), 1, "module tills has no function 'gone'"),
        ((), 2, "Missing argument 'MODULE:SETUP' (see: stagebell state check --help)"),
        (("tills:old", "--limit", "0"), 2, "--limit"),
    ],
)
def test_what_cannot_be_checked_is_said(shell: Shell, arguments: tuple[str, ...], code: int, text: str) -> None:
    (shell.folder / "tills.py").write_text(MODULE)
    done = shell.run("state", "check", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr


def test_the_group_alone_shows_its_help(shell: Shell) -> None:
    done = shell.run("state")
    assert (done.returncode, done.stderr) == (0, "")
    assert "check" in done.stdout
