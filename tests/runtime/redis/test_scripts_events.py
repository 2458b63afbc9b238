"""fanout, register and claim_type."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stagebell.errors import ServerRefused
from stagebell.runtime.redis.keys import EventsKeys
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import Claim, FanoutReply, Grant, Registered
from stagebell.runtime.redis.scripts import event_digest
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


async def event(world: World) -> dict[str, Any]:
    """A fan-out request for one event that an outside system published."""
    events = EventsKeys(world.namespace)
    grant = await world.scripts.acquire(events, worker="w1", nonce="n", ttl_ms=60_000)
    assert isinstance(grant, Grant)
    fields = {"type": "OrderPlaced", "topic": "orders/eu", "data": "{}"}
    entry_id = world.client.xadd(events.inbox, fields).decode()
    digest = event_digest([part.encode() for pair in fields.items() for part in pair])
    deliveries = [Delivery(world.a, "E1", "a/1", b"one"), Delivery(world.b, "E2", "b/1", b"two")]
    return {"events": events, "token": grant.token, "entry_id": entry_id, "digest": digest, "deliveries": deliveries}


async def test_an_event_reaches_each_subscriber_once(world: World) -> None:
    request = await event(world)
    await world.own(world.b, worker="w2")
    assert await world.scripts.fanout(**request) == FanoutReply("OK")
    assert [f for _, f in world.entries(world.a.inbox)] == [{"m": "E1", "a": "a/1", "e": "one"}]
    assert [bell["h"].split()[3] for bell in world.bells("w2")] == ["E2"]
    assert world.entries(request["events"].inbox) == []
    with world.untouched():
        assert await world.scripts.fanout(**request) == FanoutReply("GONE")


async def test_an_event_that_nobody_wants_is_done(world: World) -> None:
    request = await event(world)
    assert await world.scripts.fanout(**request | {"deliveries": ()}) == FanoutReply("OK")
    assert world.entries(request["events"].inbox) == []


async def test_an_event_that_cannot_be_read_is_set_aside(world: World) -> None:
    request = await event(world) | {"deliveries": (), "dead_letter": "unknown type"}
    assert await world.scripts.fanout(**request) == FanoutReply("OK")
    (letter,) = [f for _, f in world.entries(request["events"].dlq)]
    assert int(letter.pop("at")) > 1_600_000_000_000
    original = {"type": "OrderPlaced", "topic": "orders/eu", "data": "{}"}
    assert letter == {"in_id": request["entry_id"], "reason": "unknown type"} | original


@pytest.mark.parametrize(
    ("change", "reply"),
    [
        ({"token": "0:w0:n"}, FanoutReply("FENCED")),
        ({"entry_id": "1-1"}, FanoutReply("GONE")),
        ({"digest": event_digest([b"data", b"of another event"])}, FanoutReply("GONE")),
        ({"registry_version": 3}, FanoutReply("STALE_REGISTRY", "0")),
        ({"dead_letter": "a reason and recipients"}, FanoutReply("BADARGS")),
    ],
)
async def test_a_refused_fan_out_changes_nothing(world: World, change: dict[str, Any], reply: FanoutReply) -> None:
    request = await event(world)
    with world.untouched():
        assert await world.scripts.fanout(**request | change) == reply


async def test_an_event_for_a_full_inbox_waits_for_all_its_recipients(world: World) -> None:
    request = await event(world) | {"caps": [5, 1]}
    await world.own(world.b, worker="w2")
    await world.scripts.send([Delivery(world.b, "T", "b/1", b"the first")], window_ms=0)
    with world.untouched():
        assert await world.scripts.fanout(**request) == FanoutReply("BUSY", world.b.inbox)
    assert await world.scripts.fanout(**request | {"caps": [5, 0]}) == FanoutReply("OK")


async def test_an_event_does_not_overtake_the_one_before_it(world: World) -> None:
    first = await event(world)
    second = world.client.xadd(first["events"].inbox, {"type": "OrderPlaced", "topic": "orders/eu", "data": "{}"})
    behind = first | {"entry_id": second.decode(), "after": first["entry_id"]}
    with world.untouched():
        assert await world.scripts.fanout(**behind) == FanoutReply("BUSY", first["events"].inbox)
    assert await world.scripts.fanout(**first) == FanoutReply("OK")
    assert await world.scripts.fanout(**behind) == FanoutReply("OK")


@pytest.mark.parametrize("which", ["own", "hold", "inbox", "run", "dlq", "reg", "dest"])
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    request = await event(world)
    key = {"reg": world.shared.reg, "dest": world.b.inbox}.get(which) or getattr(request["events"], which)
    world.spoil(key)
    with world.untouched():
        reply = await world.scripts.fanout(**request, registry_version=0)
    assert reply == FanoutReply("BADKEY", key)


async def test_the_registry_counts_its_changes(world: World) -> None:
    first = await world.scripts.register([("nx", "t:a", "1"), ("set", "s:b", "2"), ("del", "m:c", "")])
    assert first == Registered(1, True, ("1", "2", ""))
    with world.untouched():
        again = await world.scripts.register([("nx", "t:a", "other"), ("set", "s:b", "2"), ("del", "m:c", "")])
        assert again == Registered(1, False, ("1", "2", ""))
    assert await world.scripts.register([("del", "t:a", "")]) == Registered(2, True, ("",))
    assert await world.scripts.register([]) == Registered(2, False, ())


@pytest.mark.parametrize("wrong", [("put", "t:a", "1"), ("set", "v", "9")])
async def test_a_wrong_change_refuses_all(world: World, wrong: Any) -> None:
    await world.scripts.register([("set", "t:a", "0")])
    with world.untouched(), pytest.raises(ServerRefused) as refused:
        await world.scripts.register([("set", "t:b", "1"), wrong])
    assert refused.value.code == "BADARGS"


async def test_a_registry_of_a_wrong_type_is_refused(world: World) -> None:
    world.spoil(world.shared.reg)
    with world.untouched(), pytest.raises(ServerRefused) as refused:
        await world.scripts.register([("set", "t:b", "1")])
    assert refused.value.code == "WRONGTYPE"


async def claim(world: World, worker: str, now: str = "10000") -> Claim:
    value = json.dumps({"w": worker})
    return await world.scripts.claim_type(field="t:user", worker=worker, value=value, timeout_ms=3000, now=now)


async def test_a_process_bound_type_has_one_holder(world: World) -> None:
    assert await claim(world, "w1") == Claim(True, version=1)
    world.client.zadd(world.shared.workers, {"w1": 9000})
    with world.untouched():
        assert await claim(world, "w1") == Claim(True, version=1)
        assert await claim(world, "w2") == Claim(False, holder="w1")


@pytest.mark.parametrize("beats", [{}, {"w1": 6000}])
async def test_a_silent_holder_loses_the_type(world: World, beats: dict[str, int]) -> None:
    await claim(world, "w1")
    if beats:
        world.client.zadd(world.shared.workers, beats)
    assert await claim(world, "w2") == Claim(True, version=2)
    assert json.loads(world.hash(world.shared.reg)["t:user"]) == {"w": "w2"}
    assert world.client.zscore(world.shared.workers, "w1") == beats.get("w1", 0)  # somebody cleans up after it


@pytest.mark.parametrize("value", ['{"p": 16}', "not JSON", "7", '{"w": null}'])
async def test_a_type_that_is_not_process_bound_cannot_be_claimed(world: World, value: str) -> None:
    await world.scripts.register([("set", "t:user", value)])
    with world.untouched():
        assert await claim(world, "w1") == Claim(False, other=value)


@pytest.mark.parametrize("which", ["reg", "workers"])
async def test_a_claim_refuses_keys_of_a_wrong_type(world: World, which: str) -> None:
    await claim(world, "w1")
    world.spoil(getattr(world.shared, which))
    with world.untouched(), pytest.raises(ServerRefused):
        await claim(world, "w2")
