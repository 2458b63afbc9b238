"""retry: a failed attempt is counted once, and leaves the next one what it may rely on."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.runtime.redis.requests import Nested
from stagebell.runtime.redis.results import RetryReply
from tests.runtime.redis.test_scripts_call import answer
from tests.runtime.redis.test_scripts_commit import nested_in
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


async def test_failures_are_counted_and_the_message_stays(world: World) -> None:
    turn = await world.turn()
    assert await world.scripts.retry(turn, attempt="w1.1") == RetryReply("OK", 1)
    assert await world.scripts.begin(turn) == 1  # the attempt that ended in order is none that a worker died in
    assert await world.scripts.retry(turn, attempt="w1.2") == RetryReply("OK", 2)
    assert [f["m"] for _, f in world.entries(world.a.inbox)] == ["T"]
    assert not world.client.exists(world.a.run)


async def test_a_repeated_failure_counts_once(world: World) -> None:
    turn = await world.turn()
    await world.scripts.retry(turn, attempt="w1.1")
    await world.scripts.begin(turn)
    with world.untouched():
        assert await world.scripts.retry(turn, attempt="w1.1") == RetryReply("OK", 1)


async def test_deaths_of_former_workers_stay_counted(world: World) -> None:
    turn = await world.turn()
    successor = turn._replace(token=await next_owner(world, turn.token))
    assert await world.scripts.begin(successor) == 2
    await world.scripts.retry(successor, attempt="w2.1")
    assert await world.scripts.attempts(world.a) == {"T": 1}


async def next_owner(world: World, token: str) -> str:
    await world.scripts.release(world.a, token=token, hold_ms=0)
    return await world.own(worker="w2", nonce="n2")


async def test_an_attempt_that_had_not_begun_takes_nothing_off(world: World) -> None:
    turn = await world.turn()
    successor = turn._replace(token=await next_owner(world, turn.token))
    await world.scripts.retry(successor, attempt="w2.1")
    assert await world.scripts.attempts(world.a) == {"T": 1}


async def test_calls_that_failed_are_made_again_and_others_are_not(world: World) -> None:
    turn = await world.turn()
    for k in ("0.0", "0.1", "0.2"):
        await world.call(turn, k)
    await answer(world, turn, "0.0", b"good")
    await answer(world, turn, "0.1", b"bad")
    await world.scripts.retry(turn, attempt="w1.1", forget=("0.1", "0.2"))
    await world.scripts.begin(turn)
    assert (await world.call(turn, "0.0")).reply == b"good"
    assert (await world.call(turn, "0.1")).status == "SENT"
    assert (await world.call(turn, "0.2")).status == "PENDING"  # it has no reply that could be forgotten


async def test_a_call_that_is_made_again_tells_what_nested_turns_left_during_the_first(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)
    nested = await nested_in(world, turn)
    await answer(world, turn, "0.0", b"bad")
    await world.scripts.commit(nested, version=0, state=b"inner", nested=Nested("T", "0  0.0 ", 0))
    await world.scripts.retry(turn, attempt="w1.1", forget=("0.0",))
    await world.scripts.begin(turn)
    again = await world.call(turn)
    assert (again.status, again.savepoints) == ("SENT", 1)


async def test_an_answer_to_the_request_of_an_earlier_attempt_is_heard_by_nobody(world: World) -> None:
    turn = await world.turn()
    first = (await world.call(turn)).entry_id
    await world.scripts.end_call(
        world.b, turn_id="T.0.0", why="cancel", entry_id=first, caller=turn, k="0.0", failure=b"given up"
    )
    await world.scripts.retry(turn, attempt="w1.1", forget=("0.0",))
    await world.scripts.begin(turn)
    second = (await world.call(turn)).entry_id
    assert second != first
    await answer(world, turn, "0.0", b"cancelled")  # the first request lies before the second
    assert (await world.call(turn)).status == "PENDING"
    await answer(world, turn, "0.0", b"good")
    assert (await world.call(turn)).reply == b"good"


async def with_savepoints(world: World, *places: str) -> Any:
    """A turn that has left these savepoints, of states "state 0", "state 1", …, and failed calls 0.0 and 1.0."""
    turn = await world.turn()
    for k in ("0.0", "1.0"):
        await world.call(turn, k)
        await answer(world, turn, k, b"bad")
    for number, place in enumerate(places):
        nested = await nested_in(world, turn, f"N{number}")
        await world.scripts.commit(
            nested, version=0, state=f"state {number}".encode(), nested=Nested("T", place, number)
        )
    return turn


async def test_of_savepoints_that_had_seen_a_forgotten_failure_the_newest_stays_before_it(world: World) -> None:
    turn = await with_savepoints(world, "0  0.0,2.0 ", "1 2.0 0.0 ", "2 2.0,0.0 0.1 ", "3 2.0,0.0,0.1 0.2 ")
    await world.scripts.retry(turn, attempt="w1.1", forget=("0.0",))
    assert world.hash(world.a.savepoints("T")) == {
        "0": "state 0",
        "@0": "0  0.0,2.0 ",
        "1": "state 3",
        "@1": "1 2.0 0.0 ",
        "last": "1",
        "#n": "4",
    }


async def test_a_savepoint_that_steps_back_to_a_place_of_its_own_awaits_the_call_there(world: World) -> None:
    turn = await with_savepoints(world, "2 0.0,1.0 0.1,2.0 ")
    await world.scripts.retry(turn, attempt="w1.1", forget=("1.0", "0.0"))
    assert world.hash(world.a.savepoints("T")) == {"0": "state 0", "@0": "0  0.0 ", "last": "0", "#n": "1"}


async def test_a_savepoint_without_a_place_stays_the_last(world: World) -> None:
    turn = await with_savepoints(world, "1 0.0 1.0 ", "- ")
    await world.scripts.retry(turn, attempt="w1.1", forget=("0.0",))
    assert world.hash(world.a.savepoints("T")) == {
        "0": "state 0",
        "@0": "0  0.0 ",
        "-": "state 1",
        "last": "-",
        "#n": "2",
    }


async def test_savepoints_stay_where_no_failure_is_forgotten(world: World) -> None:
    turn = await with_savepoints(world, "0  1.0 ", "1 1.0 0.0,2.0 ")
    before = world.hash(world.a.savepoints("T"))
    await world.scripts.retry(turn, attempt="w1.1", forget=("0.0",))
    await world.scripts.retry(turn, attempt="w1.2")
    assert world.hash(world.a.savepoints("T")) == before


async def test_the_count_ends_with_the_turn(world: World) -> None:
    for end in (world.scripts.commit, world.scripts.fail):
        turn = await world.turn()
        await world.scripts.retry(turn, attempt="w1.1")
        arguments: dict[str, Any] = {"version": 0} if end == world.scripts.commit else {"has_state": True}
        assert (await end(turn, **arguments)).status == "OK"
        assert not world.client.exists(world.a.journal("T"))


async def test_a_dead_letter_tells_of_all_attempts(world: World) -> None:
    turn = await world.turn()
    turn = turn._replace(token=await next_owner(world, turn.token))
    await world.scripts.retry(turn, attempt="w2.1")
    await world.scripts.fail(turn, has_state=False, dead_letter="no", traceback="where", uncounted=1)
    (letter,) = [f for _, f in world.entries(world.a.dlq)]
    assert (letter["attempts"], letter["traceback"]) == ("3", "where")  # one died, one failed, one nobody counted


async def test_a_former_owner_keeps_its_hold_until_it_drops_it(world: World) -> None:
    """The failure may have been the last, and then it has to write the dead letter."""
    turn = await world.turn()
    await world.scripts.release(world.a, token=turn.token, hold_ms=60_000, turns=[("a/1", "T")])
    assert (await world.scripts.retry(turn, attempt="w1.1")).status == "OK"
    assert list(world.hash(world.a.hold)) == ["a/1"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "zombie": ({"token": "0:w0:n"}, "FENCED"),
    "input-gone": ({"entry_id": "1-1"}, "DUP"),
    "entry-id-given-out-twice": ({"turn_id": "other"}, "DUP"),
}


@pytest.mark.parametrize("known", [(2, 1), (1, 2)], ids=["replies", "savepoints"])
async def test_an_attempt_that_failed_on_what_the_server_has_lost_is_not_counted(
    world: World, known: tuple[int, int]
) -> None:
    turn, replies, savepoints = await world.turn(), *known
    await world.call(turn)
    await answer(world, turn, "0.0", b"bad")
    world.client.hset(world.a.savepoints("T"), "#n", 1)
    with world.untouched():
        reply = await world.scripts.retry(turn, attempt="w1.1", known_replies=replies, known_savepoints=savepoints)
        assert reply == RetryReply("STALE")
    reply = await world.scripts.retry(turn, attempt="w1.1", known_replies=1, known_savepoints=1)
    assert reply == RetryReply("OK", 1)


@pytest.mark.parametrize("case", REFUSED)
async def test_a_failure_of_somebody_elses_turn_is_not_counted(world: World, case: str) -> None:
    changes, status = REFUSED[case]
    turn = (await world.turn())._replace(**changes)
    with world.untouched():
        assert (await world.scripts.retry(turn, attempt="w1.1")).status == status


@pytest.mark.parametrize("which", ["own", "hold", "inbox", "run", "journal", "savepoints"])
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    turn = await world.turn()
    key = getattr(world.a, which)
    key = key("T") if callable(key) else key
    world.spoil(key)
    with world.untouched():
        assert await world.scripts.retry(turn, attempt="w1.1", forget=("0.0",)) == RetryReply("BADKEY", detail=key)
