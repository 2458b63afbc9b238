"""The decisions of the engine, as values: no loop, no runtime."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import pytest
from autogen_core import AgentId, ClosureAgent, TopicId, TypePrefixSubscription, TypeSubscription
from autogen_core.tool_agent import ToolAgent

from stagebell import agent_options
from stagebell.errors import MalformedState, SubscriptionError
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.calls import find_cycle
from stagebell.runtime.engine.catalog import HostedType
from stagebell.runtime.engine.options import AgentOptions, options_of, saves_state
from stagebell.runtime.engine.snapshots import parse_snapshot
from stagebell.runtime.engine.subscriptions import Subscriptions
from stagebell.runtime.engine.turn import Entry, Turn
from tests.support.agents import Ask, Bound, Counting, Doing, Forbidding, Interleaved, Note

pytestmark = pytest.mark.unit


def activation(name: str, cls: type = Doing) -> Activation:
    return HostedType(name, cls, cls).activation(AgentId(name, "x"))


def open_turn(at: Activation, parent: Turn | None = None) -> Turn:
    turn = Turn(at, parent, None, None, True, None, None)
    at.push_turn(turn)
    if parent is not None:
        parent.calls = [*(parent.calls or []), turn]
    return turn


def waiting_call(at: Activation, parent: Turn | None, text: str = "") -> Entry:
    entry = Entry(Ask(text=text), Context(), is_rpc=True, parent=parent)
    entry.activation = at
    at.push(entry)
    if parent is not None:
        parent.calls = [*(parent.calls or []), entry]
    return entry


# -- Activation.take


def test_messages_are_taken_in_order() -> None:
    at = activation("a")
    entries = [waiting_call(at, None, text) for text in "123"]
    assert [at.take() for _ in range(3)] == entries
    assert at.take() is None
    assert at.mailbox is None


def test_a_busy_agent_takes_nothing_but_what_its_turn_waits_for() -> None:
    at, other = activation("a"), activation("b")
    turn = open_turn(at)
    stranger = waiting_call(at, None)
    publish = Entry(Note(), Context())
    at.push(publish)
    assert at.take() is None
    assert not at.has_runnable()
    back = waiting_call(at, open_turn(other, turn))
    assert at.has_nested(back)
    assert at.take() is back
    assert at.take() is None
    at.pop_turn(turn)
    assert [at.take(), at.take()] == [stranger, publish]


def test_a_nested_turn_lets_in_only_what_descends_from_itself() -> None:
    at, b, c = activation("a"), activation("b"), activation("c")
    outer = open_turn(at)
    from_b, from_c = open_turn(b, outer), open_turn(c, outer)
    nested = open_turn(at, from_b)
    late = waiting_call(at, from_c)
    assert at.take() is None
    assert not at.admits(from_c)
    assert at.admits(open_turn(activation("d"), nested))
    at.pop_turn(nested)
    assert at.take() is late


def test_a_call_that_could_be_let_in_at_once_does_not_pass_one_that_waits_to_be() -> None:
    at, b = activation("a"), activation("b")
    caller = open_turn(b, open_turn(at))
    waiting_call(at, caller, "earlier")
    assert not at.admits(caller)


def test_an_interleaved_agent_takes_every_message_and_keeps_no_stack() -> None:
    at = activation("a", Interleaved)
    open_turn(at)
    entry = waiting_call(at, None)
    assert at.open_turns() == []
    assert at.take() is entry
    assert at.admits(None)


def test_an_agent_that_forbids_it_lets_no_call_in() -> None:
    at = activation("a", Forbidding)
    turn = open_turn(at)
    back = waiting_call(at, open_turn(activation("b"), turn))
    assert not at.has_nested(back)
    assert at.take() is None
    assert not at.admits(turn)


def test_a_turn_below_the_top_can_end_first() -> None:
    at, b = activation("a"), activation("b")
    outer = open_turn(at)
    inner = open_turn(at, open_turn(b, outer))
    at.pop_turn(outer)
    assert at.open_turns() == [inner]
    at.pop_turn(inner)
    assert at.open_turns() == []


def test_removing_the_last_waiting_message_leaves_no_queue() -> None:
    at = activation("a")
    entry = waiting_call(at, None)
    assert at.remove(entry)
    assert not at.remove(entry)
    assert at.mailbox is None


# -- find_cycle


def test_no_circle_without_one() -> None:
    a, b = activation("a"), activation("b")
    caller = open_turn(a)
    open_turn(b)
    assert find_cycle(caller, b) is None


def test_a_call_back_is_no_circle() -> None:
    a, b = activation("a"), activation("b")
    outer = open_turn(a)
    assert find_cycle(open_turn(b, outer), a) is None


def test_a_call_back_is_a_circle_where_it_is_forbidden() -> None:
    a, b = activation("a", Forbidding), activation("b")
    outer = open_turn(a)
    cycle = find_cycle(open_turn(b, outer), a)
    assert cycle is not None
    assert [agent.type for agent in cycle] == ["a", "b", "a"]


def test_two_that_wait_for_each_other_are_a_circle() -> None:
    a, b = activation("a"), activation("b")
    in_a, in_b = open_turn(a), open_turn(b)
    waiting_call(b, in_a)
    cycle = find_cycle(in_b, a)
    assert cycle is not None
    assert cycle[0] == cycle[-1]
    assert {agent.type for agent in cycle} == {"a", "b"}


@pytest.mark.parametrize("length", [3, 10, 3000])
def test_a_circle_of_many_is_named_in_order(length: int) -> None:
    activations = [activation(f"a{n}") for n in range(length)]
    turns = [open_turn(at) for at in activations]
    for number in range(length - 1):
        waiting_call(activations[number + 1], turns[number])
    cycle = find_cycle(turns[-1], activations[0])
    assert cycle is not None
    assert [agent.type for agent in cycle] == [f"a{length - 1}", *(f"a{n}" for n in range(length))]


def test_a_circle_through_one_of_several_calls_is_found() -> None:
    a, b, c = activation("a"), activation("b"), activation("c")
    in_a, in_b = open_turn(a), open_turn(b)
    open_turn(c, in_a)
    waiting_call(b, in_a)
    assert find_cycle(in_b, a) is not None


# -- Subscriptions


def test_each_recipient_is_named_once_in_the_order_of_the_subscriptions() -> None:
    subscriptions = Subscriptions()
    for each in (
        TypeSubscription("t", "one"),
        TypePrefixSubscription("t", "two"),
        TypePrefixSubscription("", "one"),
    ):
        subscriptions.add(each)
    assert subscriptions.recipients(TopicId("t", "k")) == [AgentId("one", "k"), AgentId("two", "k")]
    assert subscriptions.recipients(TopicId("other", "k")) == [AgentId("one", "k")]


def test_recipients_follow_every_change() -> None:
    subscriptions, topic = Subscriptions(), TopicId("t", "k")
    assert subscriptions.recipients(topic) == []
    added = TypeSubscription("t", "one")
    subscriptions.add(added)
    assert subscriptions.recipients(topic) == [AgentId("one", "k")]
    assert list(subscriptions) == [added]
    assert subscriptions.remove(added.id) is added
    assert subscriptions.recipients(topic) == []


def test_a_subscription_is_refused_twice_and_removed_once() -> None:
    subscriptions = Subscriptions()
    subscriptions.add(TypeSubscription("t", "one"))
    with pytest.raises(SubscriptionError):
        subscriptions.add(TypeSubscription("t", "one"))
    with pytest.raises(SubscriptionError, match="unknown"):
        subscriptions.remove("unknown")


def test_the_memory_of_topics_is_bounded() -> None:
    subscriptions = Subscriptions()
    subscriptions.add(TypeSubscription("t", "one"))
    for number in range(120_000):
        subscriptions.recipients(TopicId("t", str(number)))
    assert len(vars(subscriptions)["_recipients"]) <= 60_000


# -- options


class Child(Interleaved):
    """Inherits its options."""


@agent_options()
class Serial(Interleaved):
    """Takes them back."""


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (None, AgentOptions()),
        (Doing, AgentOptions()),
        (Interleaved, AgentOptions("interleaved")),
        (Child, AgentOptions("interleaved")),
        (Serial, AgentOptions()),
        (Forbidding, AgentOptions("serial", "forbid")),
        (Bound, AgentOptions("interleaved", "chain", True)),
        (ClosureAgent, AgentOptions("interleaved", "chain", True)),
        (ToolAgent, AgentOptions()),
    ],
)
def test_the_options_of_a_class(cls: type | None, expected: AgentOptions) -> None:
    assert options_of(cls) == expected


def test_agentchats_containers_and_managers_are_process_bound() -> None:
    from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
    from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager

    assert options_of(ChatAgentContainer).process_bound
    assert options_of(RoundRobinGroupChatManager).process_bound


def test_agent_options_gives_the_class_back() -> None:
    assert agent_options()(Serial) is Serial


@pytest.mark.parametrize("wrong", [{"concurrency": "parallel"}, {"reentrancy": "maybe"}, {"reentrancy": True}])
def test_a_misspelt_option_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        agent_options(**wrong)


def test_who_saves_state() -> None:
    assert saves_state(Counting)
    assert not saves_state(Doing)


# -- snapshots


def test_a_snapshot_is_read_as_agents_and_states() -> None:
    parsed = parse_snapshot({"a/x": {"n": 1}, "b/with/slash": {}})
    assert parsed == [(AgentId("a", "x"), {"n": 1}), (AgentId("b", "with/slash"), {})]
    assert parse_snapshot({}) == []


@pytest.mark.parametrize(
    "broken",
    [None, 3, "text", [("a/x", {})], {"a/x": 3}, {"a/x": "{}"}, {"a": {}}, {"": {}}, {3: {}}, {None: {}}],
)
def test_a_malformed_snapshot_is_refused_by_name(broken: Any) -> None:
    with pytest.raises(MalformedState):
        parse_snapshot(broken)


# -- turns


def test_a_turn_makes_its_token_and_message_id_when_asked() -> None:
    turn = Turn(activation("a"), None, None, None, False, None, None)
    assert not turn.has_token
    assert turn.cancellation_token is turn.cancellation_token
    assert turn.has_token
    assert turn.message_id == turn.message_id
    assert turn.message_id
    with pytest.raises(AttributeError):
        _ = turn.nothing_of_this_name


def test_a_turn_descends_from_itself_and_those_that_await_it() -> None:
    first = open_turn(activation("a"))
    second = open_turn(activation("b"), first)
    third = open_turn(activation("c"), second)
    assert third.descends_from(first)
    assert third.descends_from(third)
    assert not first.descends_from(third)
    assert (first.depth, third.depth) == (0, 2)
