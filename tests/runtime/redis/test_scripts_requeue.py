"""requeue: a dead letter becomes a message again, once, however often and by whomever it is asked."""

from __future__ import annotations

import pytest

from stagebell.runtime.redis.keys import EventsKeys
from stagebell.runtime.redis.requests import Delivery, Turn
from stagebell.runtime.redis.results import RequeueReply
from stagebell.runtime.redis.scripts import event_digest
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


async def letter(world: World) -> str:
    """A dead letter of agent a/1; its id."""
    await world.scripts.fail(await world.turn(), has_state=False, dead_letter="no")
    return world.entries(world.a.dlq)[-1][0]


def again(world: World, turn_id: str = "T2") -> Delivery:
    return Delivery(world.a, turn_id, "a/1", b"hello")


async def test_a_letter_becomes_a_message_and_rings_the_owner(world: World) -> None:
    id = await letter(world)
    reply = await world.scripts.requeue(world.a, id, again(world))
    assert world.entries(world.a.inbox) == [(reply.entry_id, {"m": "T2", "a": "a/1", "e": "hello"})]
    assert world.entries(world.a.dlq) == []
    bell = world.bells()[-1]
    assert (bell["k"], *bell["h"].split()[1:4]) == ("in", reply.entry_id, "-", "T2")


async def test_a_repeated_request_is_one_message(world: World) -> None:
    id = await letter(world)
    first = await world.scripts.requeue(world.a, id, again(world))
    with world.untouched():
        assert await world.scripts.requeue(world.a, id, again(world)) == first
    token = world.hash(world.a.own)["tok"]
    await world.scripts.commit(Turn(world.a, token, "a/1", first.entry_id, "T2"), version=None)
    with world.untouched():  # also when it was handled meanwhile
        assert await world.scripts.requeue(world.a, id, again(world)) == first


async def test_a_letter_that_is_gone_is_not_requeued(world: World) -> None:
    id = await letter(world)
    world.client.xdel(world.a.dlq, id)
    with world.untouched():
        assert await world.scripts.requeue(world.a, id, again(world)) == RequeueReply("GONE")


async def test_it_may_go_to_another_inbox(world: World) -> None:
    id = await letter(world)
    reply = await world.scripts.requeue(world.a, id, Delivery(world.b, "T2", "b/1", b"hello"))
    assert world.entries(world.b.inbox) == [(reply.entry_id, {"m": "T2", "a": "b/1", "e": "hello"})]


async def test_an_event_comes_back_with_its_own_fields(world: World) -> None:
    events = EventsKeys(world.namespace)
    grant = await world.scripts.acquire(events, worker="w1", nonce="n", ttl_ms=60_000)
    fields = {"type": "Note", "topic": "t/a", "data": "{}", "reason": "of its own", "at": "noon"}
    entry = world.client.xadd(events.inbox, fields).decode()
    token = getattr(grant, "token", "")
    digest = event_digest([part.encode() for pair in fields.items() for part in pair])
    await world.scripts.fanout(events, token=token, entry_id=entry, digest=digest, dead_letter="unknown type")
    (id, _) = world.entries(events.dlq)[0]
    reply = await world.scripts.requeue_event(events, id)
    assert world.entries(events.inbox) == [(reply.entry_id, fields)]
    with world.untouched():
        assert await world.scripts.requeue_event(events, id) == reply
    world.client.delete(events.marker(id))
    assert (await world.scripts.requeue_event(events, id)).status == "GONE"


@pytest.mark.parametrize("which", ["dlq", "inbox", "marker"])
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    id = await letter(world)
    key = world.a.marker("T2") if which == "marker" else getattr(world.a, which)
    if which == "marker":
        world.spoilt = True
        world.client.lpush(key, "wrong")
    else:
        world.spoil(key)
    with world.untouched():
        assert await world.scripts.requeue(world.a, id, again(world)) == RequeueReply("BADKEY", detail=key)
