"""record: what a turn notes down, by whoever has the right to the turn, and as long as the turn lasts."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.runtime.redis.requests import LeftOpen, Turn
from stagebell.runtime.redis.results import RecordReply
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration

KEPT = RecordReply("KEPT")


async def record(world: World, turn: Turn, name: str = "n", value: str = "v", nonce: str = "w1.1", **known: Any) -> Any:
    return await world.scripts.record(turn, name, value, nonce=nonce, **known)


async def test_the_first_value_under_a_name_stays(world: World) -> None:
    turn = await world.turn()
    for name, value in (("a", "one two\n\0"), ("b", ""), ("", "x")):
        assert await record(world, turn, name, value) == KEPT
        with world.untouched():
            assert await record(world, turn, name, "another", nonce="w1.2") == RecordReply("KNOWN", value)


async def test_the_same_question_again_is_told_that_its_value_is_kept(world: World) -> None:
    """Its first answer was lost."""
    turn = await world.turn()
    assert await record(world, turn) == KEPT
    with world.untouched():
        assert await record(world, turn) == KEPT


async def test_no_name_is_taken_for_a_call_or_a_count(world: World) -> None:
    turn = await world.turn()
    for name in ("#r", "#f", "0.0"):
        assert await record(world, turn, name, "mine") == KEPT
    assert (await world.call(turn)).status == "SENT"
    assert (await world.scripts.retry(turn, attempt="w1.1")).failures == 1
    assert await record(world, turn, "0.0", "x", nonce="w1.2") == RecordReply("KNOWN", "mine")


async def test_nothing_is_recorded_by_a_zombie_or_for_a_turn_whose_input_is_gone(world: World) -> None:
    """I4: no effect leaves such a turn."""
    turn = await world.turn()
    with world.untouched():
        assert (await record(world, turn._replace(token="0:w0:n"))).status == "FENCED"
        assert (await record(world, turn._replace(turn_id="unknown"))).status == "DUP"
        assert (await record(world, turn._replace(entry_id="1-1"))).status == "DUP"
    await world.scripts.commit(turn, version=0)
    with world.untouched():
        assert (await record(world, turn)).status == "DUP"


async def test_a_store_behind_the_memory_of_the_turn_is_noticed(world: World) -> None:
    turn = await world.turn()
    world.client.hset(turn.state_key, mapping={"v": 2, "d": "{}"})
    for memory in ({"known_replies": 1}, {"known_savepoints": 1}, {"version": 1}, {"version": 3}):
        with world.untouched():
            assert (await record(world, turn, **memory)).status == "STALE"
    assert await record(world, turn, version=2) == KEPT


async def test_it_is_gone_with_the_end_of_the_turn(world: World) -> None:
    for end in ("commit", "fail"):
        turn = await world.turn(end)
        await record(world, turn)
        assert world.client.exists(world.a.journal(end))
        if end == "commit":
            await world.scripts.commit(turn, version=None)
        else:
            await world.scripts.fail(turn, has_state=False)
        assert not world.client.exists(world.a.journal(end))


async def test_the_next_owner_finds_it(world: World) -> None:
    turn = await world.turn()
    await record(world, turn, value="first")
    await world.scripts.retry(turn, attempt="w1.1")
    await world.scripts.release(world.a, token=turn.token, hold_ms=0)
    successor = turn._replace(token=await world.own(worker="w2", nonce="n2"))
    assert await record(world, successor, value="second", nonce="w2.1") == RecordReply("KNOWN", "first")


async def test_a_record_does_not_expire_with_what_was_left_open(world: World) -> None:
    """An earlier message of this id has left a call open, in a journal that ends by itself."""
    turn = await world.turn()
    await world.call(turn)
    await world.scripts.commit(turn, version=None, left_open=LeftOpen(("0.0",), world.shared.client_replies("c")))
    assert world.client.pttl(world.a.journal("T")) > 0
    again = turn._replace(entry_id=await world.arrive())
    await record(world, again)
    assert world.client.pttl(world.a.journal("T")) == -1


@pytest.mark.parametrize("key", ["own", "hold", "inbox", "journal", "savepoints", "state"])
async def test_a_key_of_a_wrong_type_is_named(world: World, key: str) -> None:
    turn = await world.turn()
    names = {"journal": world.a.journal("T"), "savepoints": world.a.savepoints("T"), "state": turn.state_key}
    name = names.get(key) or getattr(world.a, key)
    world.spoil(name)
    with world.untouched():
        assert await record(world, turn, version=0) == RecordReply("BADKEY", detail=name)
