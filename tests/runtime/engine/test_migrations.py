"""The form of a class's states: what it is called, and how older versions lead to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import RoutedAgent

import stagebell
from stagebell import agent_options, migrates
from stagebell.errors import MigrationError, StateMismatch
from stagebell.messages.failure import describe, restore
from stagebell.runtime.engine.migrations import StoredState, state_form
from tests.support.agents import Ask, Counting, agent

pytestmark = pytest.mark.unit

State = Mapping[str, Any]


class Plain(RoutedAgent):
    """Says nothing of its states."""


@agent_options(state_version=3, state_type="Till")
class CashDesk(RoutedAgent):
    """Its states were called Till and were two versions older."""

    @staticmethod
    @migrates(from_version=1)
    def _named(state: State) -> State:
        return {"sum": state["s"]}

    @migrates(from_version=2)
    @staticmethod
    def _in_cents(state: State) -> State:
        return {"cents": state["sum"] * 100}


def stored(version: int, type: str = "Till", **state: Any) -> StoredState:
    return StoredState(type, version, state)


def read(cls: type, found: StoredState) -> State:
    return state_form(cls).read("desk/a", found)


def test_a_class_that_says_nothing_writes_version_1_under_its_name() -> None:
    form = state_form(Plain)
    assert (form.type, form.version, form.migrations) == ("Plain", 1, {})
    assert form.read("plain/a", StoredState("Plain", 1, {"x": 1})) == {"x": 1}


def test_older_states_go_through_each_version() -> None:
    assert read(CashDesk, stored(1, s=3)) == {"cents": 300}
    assert read(CashDesk, stored(2, sum=3)) == {"cents": 300}
    assert read(CashDesk, stored(3, cents=3)) == {"cents": 3}


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (stored(4, cents=1), "a newer program wrote it, upgrade this one"),
        (stored(3, "Shelf"), '@agent_options(state_type="Shelf")'),
        (stored(2, s=3), "its migration from version 2 raised KeyError: 'sum'"),
    ],
    ids=["newer", "another-type", "migration-raises"],
)
def test_what_cannot_be_read_is_refused_with_both_sides_named(found: StoredState, advice: str) -> None:
    with pytest.raises(StateMismatch) as caught:
        read(CashDesk, found)
    error = caught.value
    assert (error.agent, error.type, error.version) == ("desk/a", "Till", 3)
    assert (error.stored_type, error.stored_version) == (found.type, found.version)
    assert f"{found.type!r} and version {found.version}, its class reads type 'Till' and version 3" in str(error)
    assert advice in str(error)


def test_the_error_reaches_callers_elsewhere_as_it_is() -> None:
    with pytest.raises(StateMismatch) as caught:
        read(CashDesk, stored(4))
    travelled = restore(describe(caught.value, ""))
    assert type(travelled) is StateMismatch
    assert str(travelled) == str(caught.value)
    assert travelled.stored_version == 4


def test_versions_from_which_nothing_leads_are_refused() -> None:
    @agent_options(state_version=3)
    class Late(RoutedAgent):
        @staticmethod
        @migrates(from_version=2)
        def _only(state: State) -> State:
            return state

    assert read(Late, StoredState("Late", 2, {})) == {}
    with pytest.raises(StateMismatch, match=r"version 1, .* version 3: add a migration: @migrates\(from_version=1\)"):
        read(Late, StoredState("Late", 1, {}))


def test_a_migration_that_returns_no_state_is_refused() -> None:
    @agent_options(state_version=2)
    class Forgetful(RoutedAgent):
        @staticmethod
        @migrates(from_version=1)
        def _nothing(state: State) -> None:
            return None

    with pytest.raises(StateMismatch, match="from version 1 returned a NoneType"):
        read(Forgetful, StoredState("Forgetful", 1, {}))


def test_a_plain_function_in_the_class_will_do() -> None:
    @agent_options(state_version=2)
    class Bare(RoutedAgent):
        @migrates(from_version=1)
        def _renamed(state: State) -> State:  # noqa: N805
            return {"new": state["old"]}

    assert read(Bare, StoredState("Bare", 1, {"old": 1})) == {"new": 1}


def test_a_subclass_inherits_the_migrations_and_may_replace_them() -> None:
    class Desk(CashDesk):
        @staticmethod
        @migrates(from_version=2)
        def _in_cents(state: State) -> State:
            return {"cents": state["sum"]}

    assert read(Desk, stored(1, s=3)) == {"cents": 3}

    @agent_options(state_type="Shelf")
    class Shelf(CashDesk):
        _named = None
        _in_cents = None

    assert state_form(Shelf).migrations == {}


def _step(version: int) -> Any:
    return staticmethod(migrates(from_version=version)(lambda state: state))


def _class(version: int, **members: Any) -> type:
    return agent_options(state_version=version)(type("Made", (RoutedAgent,), members))


def _nothing() -> State:
    return {}


async def _to_two(state: State) -> State:
    return state


BAD: dict[str, tuple[type, str]] = {
    "two-for-one-version": (_class(2, a=_step(1), b=_step(1)), "a and b both migrate from version 1"),
    "at-the-class's-version": (_class(2, a=_step(1), b=_step(2)), "b migrates from version 2, but .* version 2"),
    "above-it": (_class(2, a=_step(5)), "a migrates from version 5"),
    "none-into-it": (_class(3, a=_step(1)), "nothing leads from version 2 to 3"),
    "a-gap": (_class(4, a=_step(1), b=_step(3)), "nothing leads from version 2 to 3"),
    "a-method": (_class(2, a=migrates(from_version=1)(lambda self, state: state)), "a must take one argument"),
    "no-argument": (_class(2, a=staticmethod(migrates(from_version=1)(_nothing))), "a must take one argument"),
    "coroutine": (_class(2, a=staticmethod(migrates(from_version=1)(_to_two))), "a is a coroutine function"),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_migrations_are_refused_when_the_class_is_registered(case: str) -> None:
    cls, text = BAD[case]
    with pytest.raises(MigrationError, match=text):
        state_form(cls)
    async with stagebell.LocalRuntime() as runtime:
        with pytest.raises(ValueError, match=r"the migrations of .*Made cannot be used"):
            await runtime.register_factory("made", lambda: cls("made"), expected_class=cls)
        await Counting.register(runtime, "made", Counting)  # the name is free still
        assert await runtime.send_message(Ask(), agent("made")) == 1


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, None])
def test_versions_are_whole_numbers_from_1_on(version: Any) -> None:
    with pytest.raises(ValueError, match="from_version must be a whole number from 1 on"):
        migrates(from_version=version)
    with pytest.raises(ValueError, match="state_version must be a whole number from 1 on"):
        agent_options(state_version=version)


@pytest.mark.parametrize("name", ["", "  ", 7])
def test_a_state_type_is_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="state_type must be a name"):
        agent_options(state_type=name)
