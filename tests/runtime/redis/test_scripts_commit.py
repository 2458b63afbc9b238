"""commit: state, removal of the input, reply and outputs together, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.runtime.redis.requests import Delivery, LeftOpen, Nested, ReplyTo, Turn
from stagebell.runtime.redis.results import EndReply
from tests.runtime.redis.test_scripts_call import answer
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


async def callee(world: World, turn_id: str = "T.0.0", owner: str = "w2") -> Turn:
    """The started turn of b/1 that answers the call."""
    token = await world.own(world.b, worker=owner)
    entry_id = next(i for i, f in world.entries(world.b.inbox) if f["m"] == turn_id)
    turn = Turn(world.b, token, "b/1", entry_id, turn_id)
    await world.scripts.begin(turn)
    return turn


async def nested_in(world: World, parent: Turn, turn_id: str = "T.0.0.1.0") -> Turn:
    """A started turn of the parent's own agent, while the parent awaits call 0.0."""
    return await world.turn(turn_id, token=parent.token)


async def test_a_commit_does_all_at_once(world: World) -> None:
    turn = await world.turn()
    stream = world.shared.client_replies("me")
    reply = await world.scripts.commit(
        turn,
        version=0,
        state=b"state-1",
        reply_to=ReplyTo.client(stream, "call-1"),
        reply=b"answer",
        outputs=[Delivery(world.b, "T.0o", "b/1", b"out-0"), Delivery(world.a, "T.1o", "a/2", b"out-1")],
    )
    assert reply == EndReply("OK", 1)
    assert world.hash(world.a.state("1")) == {"v": "1", "d": "state-1"}
    assert world.client.smembers(world.a.ids) == {b"a/1"}
    assert world.hash(world.a.run) == {}
    assert [f for _, f in world.entries(stream)] == [{"k": "rep", "j": "call-1", "e": "answer"}]
    assert [f for _, f in world.entries(world.b.inbox)] == [{"m": "T.0o", "a": "b/1", "e": "out-0"}]
    assert [f for _, f in world.entries(world.a.inbox)] == [{"m": "T.1o", "a": "a/2", "e": "out-1"}]
    assert world.bells()[-1]["h"].split()[3] == "T.1o"


async def test_an_unchanged_state_counts_a_version_all_the_same(world: World) -> None:
    first = await world.turn("T1")
    await world.scripts.commit(first, version=0, state=b"s")
    second = await world.turn("T2", token=first.token)
    assert await world.scripts.commit(second, version=1) == EndReply("OK", 2)
    assert world.hash(world.a.state("1")) == {"v": "2", "d": "s"}


async def test_an_agent_without_state_leaves_none(world: World) -> None:
    turn = await world.turn()
    assert (await world.scripts.commit(turn, version=None)).status == "OK"
    assert world.names() == sorted([world.a.own, world.a.inbox, f"{world.shared.bell_head}w1}}:bell"])


async def test_a_repeated_commit_changes_nothing(world: World) -> None:
    turn = await world.turn()
    out = [Delivery(world.b, "T.0o", "b/1", b"out")]
    await world.scripts.commit(turn, version=0, state=b"s", outputs=out)
    with world.untouched():
        assert await world.scripts.commit(turn, version=0, state=b"s", outputs=out) == EndReply("DUP", 1)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    # name: changes of the turn, changes of the request, expected status
    "zombie": ({"token": "0:w0:n"}, {}, "FENCED"),
    "input-gone": ({"entry_id": "1-1"}, {}, "DUP"),
    "entry-id-given-out-twice": ({"turn_id": "other"}, {}, "DUP"),
    "state-behind-memory": ({}, {"version": 3}, "STALE"),
    "replies-behind-memory": ({}, {"known_replies": 1}, "STALE"),
    "savepoints-behind-memory": ({}, {"known_savepoints": 1}, "STALE"),
    "parent-behind-memory": ({}, {"nested": Nested("T", "0  0.0 ", 1)}, "STALE"),
    "parent-has-ended": ({}, {"nested": Nested("P", "0  0.0 ", 0)}, "STALE"),
    "registry-changed": ({}, {"registry_version": 7}, "STALE_REGISTRY"),
    "no-stream-for-open-calls": ({}, {"left_open": LeftOpen(("0.0",), "")}, "BADARGS"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_commit_changes_nothing(world: World, case: str) -> None:
    """I5, I16: a commit on another version, and any other that is refused, leaves everything as it was."""
    changes, request, status = REFUSED[case]
    turn = (await world.turn())._replace(**changes)
    arguments: dict[str, Any] = {"version": 0, "state": b"s", "reply": b"r"}
    arguments["outputs"] = [Delivery(world.b, "T.0o", "b/1", b"out")]
    arguments["reply_to"] = ReplyTo.client(world.shared.client_replies("me"), "c")
    with world.untouched():
        assert (await world.scripts.commit(turn, **arguments | request)).status == status


@pytest.mark.parametrize("case", ["argv", "keys", "mode", "version"])
async def test_malformed_arguments_are_refused_before_any_write(world: World, case: str) -> None:
    turn = await world.turn()
    seen: list[tuple[Any, ...]] = []
    known = world.connection.on_noscript
    assert known is not None
    await world.connection.execute("SCRIPT", "FLUSH")

    def broken(args: tuple[Any, ...]) -> tuple[Any, ...]:
        seen.append(args)
        command: list[Any] = list(known(args))
        first = 3 + command[2]
        if case == "argv":
            command.pop()
        elif case == "keys":
            command.pop(3)
            command[2] -= 1
        elif case == "mode":
            command[first + 6] = "other"  # after the numbers of keys and arguments
        else:
            command[first + 7] = ""
        return tuple(command)

    world.connection.on_noscript = broken
    with world.untouched():
        out = [Delivery(world.b, "T.0o", "b/1", b"out")]
        assert (await world.scripts.commit(turn, version=0, state=b"s", outputs=out)).status == "BADARGS"
    assert len(seen) == 1


@pytest.mark.parametrize(
    "which", ["own", "hold", "inbox", "state", "run", "journal", "savepoints", "ids", "client", "reg", "dest"]
)
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    turn = await world.turn()
    stream = world.shared.client_replies("me")
    key = {
        "state": world.a.state("1"),
        "journal": world.a.journal("T"),
        "savepoints": world.a.savepoints("T"),
        "client": stream,
        "reg": world.shared.reg,
        "dest": world.b.inbox,
    }.get(which) or getattr(world.a, which)
    world.spoil(key)
    with world.untouched():
        reply = await world.scripts.commit(
            turn,
            version=0,
            state=b"s",
            reply_to=ReplyTo.client(stream, "c"),
            reply=b"r",
            registry_version=0,
            outputs=[Delivery(world.b, "T.0o", "b/1", b"out")],
        )
    assert reply == EndReply("BADKEY", detail=key)


async def test_a_journal_of_a_wrong_type_is_named_by_the_callee(world: World) -> None:
    await world.call(await world.turn())
    turn = await callee(world)
    world.spoil(world.a.journal("T"))
    with world.untouched():
        to = ReplyTo.caller(world.a, "T", "0.0")
        reply = await world.scripts.commit(turn, version=0, reply_to=to, reply=b"r")
    assert reply == EndReply("BADKEY", detail=world.a.journal("T"))


async def test_a_reply_to_a_caller_that_has_ended_is_dropped(world: World) -> None:
    caller = await world.turn()
    await world.call(caller)
    await world.scripts.commit(caller, version=0)
    to = ReplyTo.caller(world.a, "T", "0.0")
    assert (await world.scripts.commit(await callee(world), version=0, reply_to=to, reply=b"r")).status == "OK"
    assert not world.client.exists(world.a.journal("T"))


async def test_a_call_has_one_outcome(world: World) -> None:
    """I8: the first outcome stands."""
    caller = await world.turn()
    await world.call(caller)
    await answer(world, caller, payload=b"first")
    await world.scripts.send([Delivery(world.b, "again", "b/1", b"request")])
    turn = await callee(world, "again")
    to = ReplyTo.caller(world.a, "T", "0.0")
    await world.scripts.commit(turn, version=None, reply_to=to, reply=b"second")
    assert world.hash(world.a.journal("T"))["#r"] == "1"
    assert (await world.call(caller)).reply == b"first"


async def test_calls_left_open_are_answered_to_the_stream_of_the_worker(world: World) -> None:
    caller = await world.turn()
    for k in ("0.0", "1.0", "2.0"):
        await world.call(caller, k)
    await answer(world, caller, "0.0", b"early")
    stream = world.shared.client_replies("w1-tasks")
    left = LeftOpen(("0.0", "1.0", "9.9"), stream)
    await world.scripts.commit(caller, version=0, known_replies=1, left_open=left)
    assert [f for _, f in world.entries(stream)] == [{"k": "rep", "j": "T.0.0", "e": "early"}]
    assert world.hash(world.a.journal("T")) == {"1.0": f"Fdigest-8{stream}"}
    assert 0 < world.client.pttl(world.a.journal("T")) <= 86_400_000
    await answer(world, caller, "1.0", b"late")
    await answer(world, caller, "2.0", b"nobody waits")
    assert [f["j"] for _, f in world.entries(stream)] == ["T.0.0", "T.1.0"]
    assert not world.client.exists(world.a.journal("T"))


async def test_a_message_of_the_same_id_takes_the_journal_of_calls_left_open_over(world: World) -> None:
    first = await world.turn()
    await world.call(first)
    left = LeftOpen(("0.0",), world.shared.client_replies("w1-tasks"))
    await world.scripts.commit(first, version=0, left_open=left)
    again = await world.turn("T", token=first.token)
    assert (await world.call(again)).status == "SENT"
    assert world.client.ttl(world.a.journal("T")) == -1


async def test_a_nested_turn_leaves_a_savepoint_and_no_state(world: World) -> None:
    parent = await world.turn()
    await world.call(parent)
    nested = await nested_in(world, parent)
    place = Nested("T", "0  0.0 ", 0)
    reply = await world.scripts.commit(nested, version=0, state=b"inner", nested=place)
    assert reply == EndReply("OK", 0)
    assert world.hash(world.a.savepoints("T")) == {"0": "inner", "@0": "0  0.0 ", "last": "0", "#n": "1"}
    assert not world.client.exists(world.a.state("1"))
    pending = await world.call(parent)
    assert pending.savepoints == 1
    assert await world.scripts.commit(parent, version=0, state=b"outer", known_savepoints=1) == EndReply("OK", 1)
    assert not world.client.exists(world.a.savepoints("T"))


async def test_an_unchanged_nested_turn_keeps_the_savepoint_before(world: World) -> None:
    parent = await world.turn()
    place = Nested("T", "0  0.0 ", 0)
    await world.scripts.commit(await nested_in(world, parent, "N1"), version=0, state=b"one", nested=place)
    await world.scripts.commit(await nested_in(world, parent, "N2"), version=0, nested=place)
    assert world.hash(world.a.savepoints("T")) == {"0": "one", "@0": "0  0.0 ", "last": "0", "#n": "2"}


async def test_a_nested_turn_on_another_version_is_refused(world: World) -> None:
    nested = await nested_in(world, await world.turn())
    with world.untouched():
        reply = await world.scripts.commit(nested, version=5, state=b"s", nested=Nested("T", "0  0.0 ", 0))
    assert reply == EndReply("STALE", 0)


async def test_a_nested_commit_keeps_the_hold_of_its_agent(world: World) -> None:
    parent = await world.turn()
    nested = await nested_in(world, parent)
    await world.scripts.release(world.a, token=parent.token, hold_ms=60_000, turns=[("a/1", "T")])
    await world.scripts.commit(nested, version=0, state=b"s", nested=Nested("T", "0  0.0 ", 0))
    assert list(world.hash(world.a.hold)) == ["a/1"]
    await world.scripts.commit(parent, version=0, known_savepoints=1)
    assert world.hash(world.a.hold) == {}


async def test_broken_bells_and_owners_do_not_break_a_commit(world: World) -> None:
    turn = await world.turn()
    world.spoil(f"{world.shared.bell_head}w1}}:bell")
    world.spoil(world.b.own)
    outputs = [Delivery(world.a, "T.0o", "a/2", b"x"), Delivery(world.b, "T.1o", "b/2", b"y")]
    assert (await world.scripts.commit(turn, version=0, outputs=outputs)).status == "OK"
    assert len(world.entries(world.a.inbox)) == len(world.entries(world.b.inbox)) == 1


async def test_states_are_bytes(world: World) -> None:
    state = bytes(range(256)) * 8
    await world.scripts.commit(await world.turn(), version=0, state=state)
    assert world.client.hget(world.a.state("1"), "d") == state


async def test_a_turn_that_has_not_asked_is_refused_when_there_are_savepoints(world: World) -> None:
    """An earlier attempt let nested turns in, this one made no call: their effects would be lost."""
    parent = await world.turn()
    nested = await nested_in(world, parent)
    await world.scripts.commit(nested, version=0, state=b"inner", nested=Nested("T", "0  0.0 ", 0))
    with world.untouched():
        assert (await world.scripts.commit(parent, version=0, state=b"s", known_savepoints=-1)).status == "UNSEEN"
    assert (await world.scripts.commit(parent, version=0, state=b"s", known_savepoints=1)).status == "OK"


@pytest.mark.parametrize("place", ["", "0.0", "x 0.0 1.0", "1 0.0", "1 0.0 1.0 2.0 3.0"])
async def test_a_nested_turn_without_a_place_is_refused(world: World, place: str) -> None:
    nested = await nested_in(world, await world.turn())
    with world.untouched():
        reply = await world.scripts.commit(nested, version=0, state=b"s", nested=Nested("T", place, 0))
        assert reply.status == "BADARGS"
        failed = await world.scripts.fail(nested, has_state=True, nested=Nested("T", place, 0))
        assert failed.status == "BADARGS"
