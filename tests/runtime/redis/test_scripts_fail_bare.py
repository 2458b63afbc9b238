"""fail in mode bare: when another key is spoilt, the caller is still told and the input goes."""

from __future__ import annotations

import pytest

from stagebell.runtime.redis.requests import ReplyTo
from stagebell.runtime.redis.results import EndReply
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("which", ["state", "run", "journal", "savepoints", "dlq", "ids"])
async def test_a_spoilt_key_does_not_keep_the_caller_waiting(world: World, which: str) -> None:
    turn = await world.turn()
    stream = world.shared.client_replies("me")
    named = {"state": world.a.state("1"), "journal": world.a.journal("T"), "savepoints": world.a.savepoints("T")}
    world.spoil(named.get(which) or getattr(world.a, which))
    to = ReplyTo.client(stream, "c")
    reply = await world.scripts.fail(turn, has_state=True, reply_to=to, failure=b"no", dead_letter="why", bare=True)
    assert reply == EndReply("OK", 0)
    assert [f for _, f in world.entries(stream)] == [{"k": "rep", "j": "c", "e": "no"}]
    assert world.entries(world.a.inbox) == []


@pytest.mark.parametrize("which", ["own", "hold", "inbox", "client"])
async def test_what_bare_needs_itself_is_named(world: World, which: str) -> None:
    turn = await world.turn()
    stream = world.shared.client_replies("me")
    key = stream if which == "client" else getattr(world.a, which)
    world.spoil(key)
    with world.untouched():
        reply = await world.scripts.fail(turn, has_state=True, reply_to=ReplyTo.client(stream, "c"), bare=True)
    assert reply == EndReply("BADKEY", detail=key)


async def test_spoilt_dead_letters_do_not_matter_when_none_is_written(world: World) -> None:
    turn = await world.turn()
    world.spoil(world.a.dlq)
    assert (await world.scripts.fail(turn, has_state=True)).status == "OK"


async def test_an_entry_without_turn_id_is_set_aside_by_its_entry_id(world: World) -> None:
    turn = await world.turn()
    id = world.client.xadd(world.a.inbox, {"foo": "bar"}).decode()
    foreign = turn._replace(entry_id=id, turn_id="", agent="")
    assert (await world.scripts.fail(foreign, has_state=False, dead_letter="why")).status == "OK"
    assert [f["foo"] for _, f in world.entries(world.a.dlq)] == ["bar"]
    assert [i for i, _ in world.entries(world.a.inbox)] == [turn.entry_id]


async def test_an_entry_of_ours_is_not_set_aside_without_its_turn_id(world: World) -> None:
    turn = await world.turn()
    with world.untouched():
        reply = await world.scripts.fail(turn._replace(turn_id=""), has_state=False, dead_letter="why")
    assert reply.status == "DUP"
