"""fail: of a failed turn remain its failure, its dead letter and what nested turns have shown to others."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.runtime.redis.requests import LeftOpen, Nested, ReplyTo
from stagebell.runtime.redis.results import EndReply
from tests.runtime.redis.test_scripts_commit import callee, nested_in
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


async def test_a_failed_turn_leaves_a_dead_letter_and_nothing_else(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)
    reply = await world.scripts.fail(turn, has_state=True, dead_letter="ValueError: no")
    assert reply == EndReply("OK", 0)
    (letter,) = [f for _, f in world.entries(world.a.dlq)]
    assert int(letter.pop("at")) > 1_600_000_000_000
    why = {"in_id": turn.entry_id, "reason": "ValueError: no", "attempts": "1", "traceback": ""}
    assert letter == why | {"m": "T", "a": "a/1", "e": "hello"}
    assert world.entries(world.a.inbox) == []
    for key in (world.a.run, world.a.journal("T"), world.a.state("1"), world.a.ids):
        assert not world.client.exists(key)


async def test_without_a_reason_there_is_no_dead_letter(world: World) -> None:
    await world.scripts.fail(await world.turn(), has_state=False)
    assert not world.client.exists(world.a.dlq)


async def test_the_caller_gets_the_failure(world: World) -> None:
    caller = await world.turn()
    sent = await world.call(caller)
    turn = await callee(world)
    to = ReplyTo.caller(world.a, "T", "0.0")
    await world.scripts.fail(turn, has_state=True, reply_to=to, failure=b"failure")
    assert (await world.call(caller)).reply == b"failure"
    ring = {"k": "rep", "p": world.a.tag, "t": "T", "j": "0.0", "i": sent.entry_id, "e": "failure"}
    assert world.bells()[-1] == ring


async def test_a_client_gets_the_failure(world: World) -> None:
    stream = world.shared.client_replies("me")
    to = ReplyTo.client(stream, "c1")
    await world.scripts.fail(await world.turn(), has_state=True, reply_to=to, failure=b"failure")
    assert [f for _, f in world.entries(stream)] == [{"k": "rep", "j": "c1", "e": "failure"}]


async def test_the_last_savepoint_becomes_the_state(world: World) -> None:
    turn = await world.turn()
    nested = await nested_in(world, turn)
    await world.scripts.commit(nested, version=0, state=b"inner", nested=Nested("T", "0  0.0 ", 0))
    assert await world.scripts.fail(turn, has_state=True, known_savepoints=1) == EndReply("OK", 1)
    assert world.hash(world.a.state("1")) == {"v": "1", "d": "inner"}
    assert world.client.smembers(world.a.ids) == {b"a/1"}
    assert not world.client.exists(world.a.savepoints("T"))


async def test_the_last_savepoint_of_a_nested_turn_goes_to_its_parent(world: World) -> None:
    parent = await world.turn()
    nested = await nested_in(world, parent, "N")
    inner = await nested_in(world, parent, "M")
    await world.scripts.commit(inner, version=0, state=b"innermost", nested=Nested("N", "0  0.0 ", 0))
    place = Nested("T", "1 0.0 3.0 ", 0)
    reply = await world.scripts.fail(nested, has_state=True, nested=place, known_savepoints=1)
    assert reply == EndReply("OK", 0, parent_savepoints=1)
    assert world.hash(world.a.savepoints("T")) == {"1": "innermost", "@1": "1 0.0 3.0 ", "last": "1", "#n": "1"}


async def test_a_nested_failure_without_savepoint_leaves_the_parent_alone(world: World) -> None:
    nested = await nested_in(world, await world.turn())
    reply = await world.scripts.fail(nested, has_state=True, nested=Nested("T", "0  0.0 ", 0))
    assert reply == EndReply("OK", 0, parent_savepoints=0)
    assert not world.client.exists(world.a.savepoints("T"))


async def test_a_nested_turn_whose_parent_has_ended_leaves_it_no_savepoint(world: World) -> None:
    parent = await world.turn()
    nested = await nested_in(world, parent, "N")
    inner = await nested_in(world, parent, "M")
    await world.scripts.commit(inner, version=0, state=b"innermost", nested=Nested("N", "0  0.0 T:0.0::0.0", 0))
    await world.scripts.commit(parent, version=0, state=b"parent")
    place = Nested("T", "0  0.0 ", 0)
    with world.untouched():
        assert (await world.scripts.fail(nested, has_state=True, nested=place, known_savepoints=1)).status == "STALE"
    # Alone it leaves nothing either: its savepoint holds what the parent had done when it was not yet over.
    assert await world.scripts.fail(nested, has_state=True, known_savepoints=1) == EndReply("OK", 1)
    assert world.hash(world.a.state("1")) == {"v": "1", "d": "parent"}
    assert not world.client.exists(world.a.savepoints("N"), world.a.savepoints("T"))


async def test_a_turn_is_ended_by_a_wish_that_the_server_knows(world: World) -> None:
    turn = await world.turn()
    other = world.client.xadd(world.a.ctl, {"m": "other", "i": turn.entry_id, "w": "cancel"}).decode()
    with world.untouched():
        assert (await world.scripts.fail(turn, has_state=True, wish=other)).status == "STALE"
    wish = world.client.xadd(world.a.ctl, {"m": "T", "i": turn.entry_id, "w": "cancel"}).decode()
    assert (await world.scripts.fail(turn, has_state=True, wish=wish)).status == "OK"


async def test_a_failure_of_an_agent_without_state_writes_none(world: World) -> None:
    turn = await world.turn()
    await world.scripts.commit(await nested_in(world, turn), version=None, state=b"x", nested=Nested("T", "0  0.0 ", 0))
    await world.scripts.fail(turn, has_state=False)
    assert not world.client.exists(world.a.state("1"))


async def test_calls_left_open_by_a_failed_turn_still_end(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)
    stream = world.shared.client_replies("w1-tasks")
    await world.scripts.fail(turn, has_state=True, left_open=LeftOpen(("0.0",), stream))
    to = ReplyTo.caller(world.a, "T", "0.0")
    await world.scripts.commit(await callee(world), version=0, reply_to=to, reply=b"late")
    assert [f for _, f in world.entries(stream)] == [{"k": "rep", "j": "T.0.0", "e": "late"}]


async def test_a_repeated_failure_changes_nothing(world: World) -> None:
    turn = await world.turn()
    await world.scripts.fail(turn, has_state=True, dead_letter="no")
    with world.untouched():
        assert (await world.scripts.fail(turn, has_state=True, dead_letter="no")).status == "DUP"


async def test_a_held_agent_is_freed_by_its_failure(world: World) -> None:
    turn = await world.turn()
    await world.scripts.release(world.a, token=turn.token, hold_ms=60_000, turns=[("a/1", "T")])
    assert (await world.scripts.fail(turn, has_state=True)).status == "OK"
    assert world.hash(world.a.hold) == {}


async def test_a_nested_failure_keeps_the_hold_of_its_agent(world: World) -> None:
    parent = await world.turn()
    nested = await nested_in(world, parent)
    await world.scripts.release(world.a, token=parent.token, hold_ms=60_000, turns=[("a/1", "T")])
    await world.scripts.fail(nested, has_state=True, nested=Nested("T", "0  0.0 ", 0))
    assert list(world.hash(world.a.hold)) == ["a/1"]


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "zombie": ({"token": "0:w0:n"}, {}, "FENCED"),
    "input-gone": ({"entry_id": "1-1"}, {}, "DUP"),
    "entry-id-given-out-twice": ({"turn_id": "other"}, {}, "DUP"),
    "savepoints-behind-memory": ({}, {"known_savepoints": 1}, "STALE"),
    "replies-behind-memory": ({}, {"known_replies": 1}, "STALE"),
    "parent-behind-memory": ({}, {"nested": Nested("P", "0  0.0 ", 1)}, "STALE"),
    "wish-lost": ({}, {"wish": "1-0"}, "STALE"),
    "no-stream-for-open-calls": ({}, {"left_open": LeftOpen(("0.0",), "")}, "BADARGS"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_failure_changes_nothing(world: World, case: str) -> None:
    changes, request, status = REFUSED[case]
    turn = (await world.turn())._replace(**changes)
    to = ReplyTo.client(world.shared.client_replies("me"), "c")
    arguments: dict[str, Any] = {"has_state": True, "reply_to": to, "dead_letter": "no"}
    with world.untouched():
        assert (await world.scripts.fail(turn, **arguments | request)).status == status


@pytest.mark.parametrize(
    "which", ["own", "hold", "inbox", "state", "run", "journal", "savepoints", "dlq", "ids", "client", "ctl"]
)
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    turn = await world.turn()
    stream = world.shared.client_replies("me")
    key = {
        "state": world.a.state("1"),
        "journal": world.a.journal("T"),
        "savepoints": world.a.savepoints("T"),
        "client": stream,
    }.get(which) or getattr(world.a, which)
    world.spoil(key)
    with world.untouched():
        to, wish = ReplyTo.client(stream, "c"), "1-0" if which == "ctl" else ""
        reply = await world.scripts.fail(turn, has_state=True, reply_to=to, dead_letter="no", wish=wish)
    assert reply == EndReply("BADKEY", detail=key)
