"""Timers: set, replaced, cancelled, looked for, and promoted into the inbox exactly once for each time they are due."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.runtime.redis.effects import Effect, Names
from stagebell.runtime.redis.keys import EventsKeys
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import EndReply
from stagebell.runtime.redis.timer_scripts import Due, DueTimer, TimerReply
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration

NOW = 1_000_000


async def scheduled(world: World, timer: str = "t", *, nonce: str = "n", every: int = 0, **changes: Any) -> TimerReply:
    """Set a timer in partition a; by default it is due in a second."""
    message = f"{nonce}|{every}|envelope".encode()
    known: dict[str, Any] = {"when": "+1000", "message": message, "now": str(NOW)}
    return await world.scripts.schedule(world.a, timer=timer, nonce=nonce, **known | changes)


async def due(world: World, now: int, count: int = 10) -> Due:
    return await world.scripts.due(world.a, count=count, now=str(now))


async def promoted(world: World, token: str, timer: DueTimer, now: int, nonce: bytes = b"n") -> TimerReply:
    to = Delivery(world.a, f"{timer.timer}.{timer.when}", "a/1", b"envelope")
    return await world.scripts.promote(token, timer, nonce, to, now=str(now))


async def test_a_timer_is_set_and_rings(world: World) -> None:
    await world.own()
    assert await scheduled(world) == TimerReply("OK", str(NOW + 1000))
    assert world.client.zscore(world.a.due, "t") == NOW + 1000
    assert world.hash(world.a.timed) == {"t": "n|0|envelope"}
    assert [(bell["k"], bell["p"]) for bell in world.bells()] == [("due", world.a.tag)]


async def test_a_repeated_request_sets_one_timer(world: World) -> None:
    first = await scheduled(world)
    token = await world.own()
    timer = (await due(world, NOW + 1000)).timers[0]
    assert await promoted(world, token, timer, NOW + 1000) == TimerReply("OK", "0")
    with world.untouched():
        assert await scheduled(world, now=str(NOW + 5000)) == first
    assert not world.client.exists(world.a.due, world.a.timed)


async def test_a_timer_of_the_same_name_is_replaced(world: World) -> None:
    await scheduled(world)
    assert await scheduled(world, nonce="m", when=str(NOW + 7)) == TimerReply("OK", str(NOW + 7))
    assert await due(world, NOW + 7) == Due(NOW + 7, -1, [DueTimer("t", NOW + 7, b"m|0|envelope")])


async def test_the_clock_is_the_servers(world: World) -> None:
    seconds, _ = world.client.time()
    reply = await scheduled(world, now="")
    assert abs(int(reply.detail) - 1000 * seconds - 1000) < 5000
    assert (await world.scripts.due(world.a, count=1)).timers == []


async def test_a_timer_is_cancelled(world: World) -> None:
    await scheduled(world)
    assert await world.scripts.is_set(world.a, "t")
    assert await world.scripts.unschedule(world.a, timer="t") is True
    assert await world.scripts.unschedule(world.a, timer="t") is False
    assert not await world.scripts.is_set(world.a, "t")
    assert not world.client.exists(world.a.due, world.a.timed)


async def test_what_is_due_is_found_in_order(world: World) -> None:
    for timer, when in (("c", 30), ("a", 10), ("b", 20), ("d", 40)):
        await scheduled(world, timer, nonce=timer, when=str(NOW + when))
    found = await due(world, NOW + 30, count=2)
    assert ([timer.timer for timer in found.timers], found.following) == (["a", "b"], NOW + 40)
    assert await world.scripts.upcoming([world.a, world.b], now="7") == [7, NOW + 10, -1]


async def test_a_timer_that_is_due_goes_into_the_inbox_once(world: World) -> None:
    token = await world.own()
    await scheduled(world)
    timer = (await due(world, NOW + 1000)).timers[0]
    assert await promoted(world, token, timer, NOW + 1000) == TimerReply("OK", "0")
    with world.untouched():
        assert (await promoted(world, token, timer, NOW + 1000)).status == "GONE"
    assert [f for _, f in world.entries(world.a.inbox)] == [{"m": f"t.{NOW + 1000}", "a": "a/1", "e": "envelope"}]
    assert world.bells()[-1]["k"] == "in"


@pytest.mark.parametrize(
    ("late", "next_ms"), [(0, 1100), (99, 1100), (100, 1200), (101, 1200), (12_345, 13_400), (-5, 1100)]
)
async def test_times_that_were_missed_are_one(world: World, late: int, next_ms: int) -> None:
    token = await world.own()
    await scheduled(world, every=100)
    timer = DueTimer("t", NOW + 1000, b"")
    assert await promoted(world, token, timer, NOW + 1000 + late) == TimerReply("OK", str(NOW + next_ms))
    assert len(world.entries(world.a.inbox)) == 1
    assert world.client.zscore(world.a.due, "t") == NOW + next_ms
    assert world.hash(world.a.timed) == {"t": "n|100|envelope"}


async def test_only_the_owner_promotes(world: World) -> None:
    await world.own()
    await scheduled(world)
    with world.untouched():
        assert (await promoted(world, "0:w0:n", DueTimer("t", NOW + 1000, b""), NOW + 1000)).status == "FENCED"


@pytest.mark.parametrize("change", ["cancelled", "replaced", "at another time"])
async def test_a_timer_that_has_changed_is_not_promoted(world: World, change: str) -> None:
    token = await world.own()
    await scheduled(world)
    timer = (await due(world, NOW + 1000)).timers[0]
    if change == "cancelled":
        await world.scripts.unschedule(world.a, timer="t")
    elif change == "replaced":
        await scheduled(world, nonce="m", when=str(timer.when))
    else:
        timer = timer._replace(when=timer.when + 1)
    with world.untouched():
        assert (await promoted(world, token, timer, NOW + 1000)).status == "GONE"


async def test_a_publish_goes_to_the_stream_of_events(world: World) -> None:
    events = EventsKeys(world.namespace)
    token = await world.own(events)
    await world.scripts.schedule(events, timer="t", nonce="n", when=str(NOW), message=b"n|0|envelope")
    to = Delivery(events, "", "", b"envelope, again")
    assert (await world.scripts.promote(token, DueTimer("t", NOW, b""), b"n", to)).status == "OK"
    assert [f for _, f in world.entries(events.inbox)] == [{"e": "envelope, again"}]


async def test_a_timer_for_a_process_that_has_ended_is_not_set(world: World) -> None:
    await world.scripts.register([("set", "t:a", "x")])
    with world.untouched():
        assert await scheduled(world, registry_version=0) == TimerReply("STALE_REGISTRY", "1")
    assert (await scheduled(world, registry_version=1)).status == "OK"


@pytest.mark.parametrize("which", ["due", "timed", "marker", "reg"])
async def test_a_key_of_a_wrong_type_is_named_before_a_timer_is_set(world: World, which: str) -> None:
    names = {"marker": world.a.marker("t.n"), "reg": world.shared.reg}
    key = names.get(which) or getattr(world.a, which)
    world.spoil(key)
    with world.untouched():
        assert await scheduled(world, registry_version=0) == TimerReply("BADKEY", key)


@pytest.mark.parametrize("which", ["own", "due", "timed", "inbox"])
async def test_a_key_of_a_wrong_type_is_named_before_a_timer_is_promoted(world: World, which: str) -> None:
    token = await world.own()
    await scheduled(world)
    key = getattr(world.a, which)
    world.spoil(key)
    with world.untouched():
        assert await promoted(world, token, DueTimer("t", NOW + 1000, b""), NOW) == TimerReply("BADKEY", key)


async def test_arguments_that_are_none_are_refused(world: World) -> None:
    with world.untouched():
        assert (await scheduled(world, when="soon")).status == "BADARGS"


# -- with the commit of a turn


def setting(world: World, when: str = "+1000", message: bytes = b"n|0|envelope") -> list[Effect]:
    bell = Effect(Names(world.b.own, world.b.own, "!" + world.b.tag), "", "", b"")
    return [Effect(Names(world.b.due, world.b.timed, "+"), "t", when, message), bell]


async def test_a_commit_sets_a_timer_and_rings(world: World) -> None:
    await world.own(world.b, worker="w2")
    turn = await world.turn()
    assert (await world.scripts.commit(turn, version=0, outputs=setting(world, str(NOW)))).status == "OK"
    assert world.client.zscore(world.b.due, "t") == NOW
    assert world.hash(world.b.timed) == {"t": "n|0|envelope"}
    assert [(bell["k"], bell["p"]) for bell in world.bells("w2")] == [("due", world.b.tag)]


async def test_a_commit_counts_a_delay_from_now(world: World) -> None:
    turn = await world.turn()
    await world.scripts.commit(turn, version=0, outputs=setting(world))
    seconds, _ = world.client.time()
    assert abs(world.client.zscore(world.b.due, "t") - 1000 * seconds - 1000) < 5000


async def test_a_commit_cancels_a_timer(world: World) -> None:
    first = await world.turn("T1")
    await world.scripts.commit(first, version=0, outputs=setting(world))
    turn = await world.turn("T2", token=first.token)
    assert (await world.scripts.commit(turn, version=1, outputs=setting(world, "", b"")[:1])).status == "OK"
    assert not world.client.exists(world.b.due, world.b.timed)


@pytest.mark.parametrize("which", ["due", "timed"])
async def test_a_key_of_a_wrong_type_is_named_before_a_commit(world: World, which: str) -> None:
    turn = await world.turn()
    key = getattr(world.b, which)
    world.spoil(key)
    with world.untouched():
        reply = await world.scripts.commit(turn, version=0, outputs=setting(world))
    assert reply == EndReply("BADKEY", detail=key)
