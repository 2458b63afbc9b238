"""The script by which whoever asked gives a message up."""

from __future__ import annotations

import pytest

from stagebell.errors import ServerRefused
from stagebell.runtime.redis.requests import Delivery, ReplyTo, Turn
from tests.runtime.redis.world import World

pytestmark = [pytest.mark.integration]


async def give_up(world: World, turn: Turn, k: str = "0.0") -> int:
    return await world.scripts.end_call(
        world.b, turn_id=f"{turn.turn_id}.{k}", why="cancel", caller=turn, k=k, failure=b"cancelled"
    )


async def sent_from_outside(world: World, turn_id: str = "T") -> str:
    reply = await world.scripts.send([Delivery(world.b, turn_id, "b/1", b"hello")])
    return reply.ids[0]


async def test_an_open_call_gets_its_outcome_and_the_callees_owner_hears_of_it(world: World) -> None:
    turn = await world.turn()
    await world.own(world.b, worker="w2")
    entry_id = (await world.call(turn)).entry_id
    assert await give_up(world, turn) == 1
    assert world.hash(world.a.journal("T")) == {"0.0": "Rdigest-8cancelled", "#r": "1"}
    ((told, fields),) = world.entries(world.b.ctl)
    assert fields == {"m": "T.0.0", "i": entry_id, "w": "cancel"}
    assert world.bells("w2")[-1] == {
        "k": "end",
        "p": world.b.tag,
        "c": told,
        "m": "T.0.0",
        "i": entry_id,
        "w": "cancel",
        "e": "",
    }
    assert [end.entry_id for end in await world.scripts.ends(world.b, "-", 10)] == [entry_id]


async def test_a_reply_that_was_faster_stays_the_outcome(world: World) -> None:
    turn, token = await world.turn(), await world.own(world.b, worker="w2")
    entry_id = (await world.call(turn)).entry_id
    callee = Turn(world.b, token, "b/1", entry_id, "T.0.0")
    reply_to = ReplyTo.caller(world.a, "T", "0.0")
    reply = await world.scripts.commit(callee, version=None, reply_to=reply_to, reply=b"answer")
    assert reply.status == "OK"
    with world.untouched():
        assert await give_up(world, turn) == 0
    assert world.hash(world.a.journal("T"))["0.0"] == "Rdigest-8answer"


async def test_a_reply_that_comes_later_is_dropped(world: World) -> None:
    turn, token = await world.turn(), await world.own(world.b, worker="w2")
    entry_id = (await world.call(turn)).entry_id
    assert await give_up(world, turn) == 1
    callee = Turn(world.b, token, "b/1", entry_id, "T.0.0")
    reply_to = ReplyTo.caller(world.a, "T", "0.0")
    assert (await world.scripts.commit(callee, version=None, reply_to=reply_to, reply=b"answer")).status == "OK"
    assert world.hash(world.a.journal("T"))["0.0"] == "Rdigest-8cancelled"


async def test_given_up_twice_it_has_one_outcome_and_one_entry(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)
    assert await give_up(world, turn) == 1
    with world.untouched():
        assert await give_up(world, turn) == 0


async def test_a_turn_that_is_ended_by_a_lost_wish_gives_up_nothing(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)

    async def give_up_by(wish: str) -> int:
        return await world.scripts.end_call(
            world.b, turn_id="T.0.0", why="cancel", caller=turn, k="0.0", failure=b"cancelled", wish=wish
        )

    other = world.client.xadd(world.a.ctl, {"m": "other", "i": turn.entry_id, "w": "cancel"}).decode()
    with world.untouched():
        assert await give_up_by("1-0") == await give_up_by(other) == -1
    assert await give_up_by(world.client.xadd(world.a.ctl, {"m": "T", "i": turn.entry_id, "w": "cancel"}).decode()) == 1


async def test_a_call_that_was_never_sent_is_not_given_up(world: World) -> None:
    turn = await world.turn()
    with world.untouched():
        assert await give_up(world, turn) == 0


async def test_a_zombie_gives_up_nothing(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)
    await world.scripts.release(world.a, token=turn.token, hold_ms=1)
    await world.own(world.a, worker="w2")
    with world.untouched():
        assert await give_up(world, turn) == -1


async def test_a_call_that_outlived_its_turn_is_given_up_by_its_entry(world: World) -> None:
    turn = await world.turn()
    entry_id = (await world.call(turn)).entry_id
    world.client.hset(world.a.journal("T"), "0.0", "Fdigest-8sb:{ns:c:w1}:rep")
    asked = world.scripts.end_call(
        world.b, turn_id="T.0.0", why="cancel", entry_id=entry_id, caller=turn, k="0.0", failure=b"x"
    )
    assert await asked == 1
    assert world.hash(world.a.journal("T")) == {}
    assert [fields["i"] for _, fields in world.entries(world.b.ctl)] == [entry_id]


@pytest.mark.parametrize("names_it", [True, False])
async def test_from_outside_the_entry_is_found_by_its_id_or_its_marker(world: World, names_it: bool) -> None:
    entry_id = await sent_from_outside(world)
    given = entry_id if names_it else ""
    assert await world.scripts.end_call(world.b, turn_id="T", why="deadline", entry_id=given) == 1
    assert world.entries(world.b.ctl)[0][1] == {"m": "T", "i": entry_id, "w": "deadline"}


async def test_from_outside_nothing_is_stored_for_a_message_that_is_gone(world: World) -> None:
    entry_id = await sent_from_outside(world)
    world.client.xdel(world.b.inbox, entry_id)
    with world.untouched():
        assert await world.scripts.end_call(world.b, turn_id="T", why="cancel", entry_id=entry_id) == 0
        assert await world.scripts.end_call(world.b, turn_id="T", why="cancel") == 0
        assert await world.scripts.end_call(world.b, turn_id="unknown", why="cancel") == 0


@pytest.mark.parametrize("name", ["inbox", "ctl", "journal"])
async def test_a_key_of_a_wrong_type_is_named_before_anything_is_written(world: World, name: str) -> None:
    turn = await world.turn()
    await world.call(turn)
    world.spoil(world.a.journal("T") if name == "journal" else getattr(world.b, name))
    with world.untouched(), pytest.raises(ServerRefused) as refused:
        await give_up(world, turn)
    assert refused.value.code == "BADKEY"
