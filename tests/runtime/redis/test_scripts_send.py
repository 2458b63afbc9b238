"""send, and the bells that tell an owner of what arrived."""

from __future__ import annotations

import asyncio

import pytest

from stagebell.errors import ServerRefused
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.lua_files import SCRIPTS
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import SendReply
from stagebell.runtime.redis.scripts import Scripts
from tests.runtime.redis.world import World
from tests.support.servers import Kind, Server, available_kinds

pytestmark = pytest.mark.integration


def to_both(world: World) -> list[Delivery]:
    return [Delivery(world.a, "T1", "a/1", b"one"), Delivery(world.b, "T2", "b/1", b"two")]


async def test_a_message_for_two_recipients_reaches_both(world: World) -> None:
    reply = await world.scripts.send(to_both(world))
    assert world.entries(world.a.inbox) == [(reply.ids[0], {"m": "T1", "a": "a/1", "e": "one"})]
    assert world.entries(world.b.inbox) == [(reply.ids[1], {"m": "T2", "a": "b/1", "e": "two"})]


async def test_a_repeated_send_is_one_message(world: World) -> None:
    """I11: within the window the same turn id is one message."""
    first = await world.scripts.send(to_both(world))
    with world.untouched():
        assert await world.scripts.send(to_both(world)) == first


async def test_one_of_the_recipients_may_have_had_it_before(world: World) -> None:
    first = await world.scripts.send(to_both(world)[:1])
    reply = await world.scripts.send(to_both(world))
    assert reply.ids[0] == first.ids[0]
    assert [len(world.entries(k.inbox)) for k in (world.a, world.b)] == [1, 1]


async def test_the_same_recipient_twice_in_one_send_is_one_message(world: World) -> None:
    twice = to_both(world)[:1] * 2
    reply = await world.scripts.send(twice)
    assert reply.ids[0] == reply.ids[1]
    assert len(world.entries(world.a.inbox)) == 1


async def test_a_marker_lives_for_the_window_and_without_window_there_is_none(world: World) -> None:
    await world.scripts.send(to_both(world)[:1], window_ms=5000)
    assert 0 < world.client.pttl(world.a.marker("T1")) <= 5000
    await world.scripts.send(to_both(world)[1:], window_ms=0)
    await world.scripts.send(to_both(world)[1:], window_ms=0)
    assert not world.client.exists(world.b.marker("T2"))
    assert len(world.entries(world.b.inbox)) == 2


async def test_a_full_inbox_refuses_all_recipients(world: World) -> None:
    await world.arrive()
    deliveries = [Delivery(world.b, "T2", "b/1", b"two"), Delivery(world.a, "T1", "a/1", b"one")]
    with world.untouched():
        assert await world.scripts.send(deliveries, cap=1) == SendReply("BUSY", busy=(1, 1))
    assert (await world.scripts.send(deliveries, cap=2)).status == "OK"
    # a repeated send is answered though the inbox is full by now
    assert (await world.scripts.send(deliveries, cap=2)).status == "OK"


async def test_a_message_is_not_taken_before_the_one_it_follows(world: World) -> None:
    first, second = to_both(world)[0], Delivery(world.a, "T9", "a/1", b"nine")
    after = [world.a.marker(first.turn_id)]
    with world.untouched():
        assert (await world.scripts.send([second], after=after)).status == "BUSY"
    await world.scripts.send([first])
    assert (await world.scripts.send([second], after=after)).status == "OK"
    assert (await world.scripts.send([second], after=[world.a.marker("gone")])).status == "OK"  # it was taken before


async def test_the_cap_counts_what_the_same_send_brings(world: World) -> None:
    deliveries = [Delivery(world.a, f"T{i}", f"a/{i}", b"x") for i in range(3)]
    with world.untouched():
        assert await world.scripts.send(deliveries, cap=2) == SendReply("BUSY", busy=(2, 2))


async def test_recipients_found_in_an_older_registry_are_refused(world: World) -> None:
    assert (await world.scripts.send(to_both(world), registry_version=0)).status == "OK"
    await world.scripts.register([("set", "s:x", "y")])
    with world.untouched():
        stale = await world.scripts.send(to_both(world), registry_version=0)
        assert stale == SendReply("STALE_REGISTRY", detail="1")
    assert (await world.scripts.send(to_both(world), registry_version=1)).status == "OK"


@pytest.mark.parametrize("which", ["reg", "inbox", "marker"])
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    key = {"reg": world.shared.reg, "inbox": world.b.inbox, "marker": world.b.marker("T2")}[which]
    world.spoil(key)
    with world.untouched():
        reply = await world.scripts.send(to_both(world), registry_version=0)
    assert reply == SendReply("BADKEY", detail=key)


async def test_an_owner_of_a_wrong_type_costs_the_bell_only(world: World) -> None:
    world.spoil(world.a.own)
    assert (await world.scripts.send(to_both(world))).status == "OK"


async def test_each_arrival_rings_the_owner_and_names_the_entry_before(world: World) -> None:
    await world.own()
    first = await world.arrive("T1")
    second = await world.arrive("T2", "a/ü 2", b"zwei")
    assert world.bells() == [
        {"k": "in", "h": f"{world.a.tag} {first} - T1 a/1", "e": "hello"},
        {"k": "in", "h": f"{world.a.tag} {second} {first} T2 a/ü 2", "e": "zwei"},
    ]


async def test_a_bell_that_is_half_over_is_prolonged(world: World) -> None:
    bell = f"{world.shared.bell_head}w1}}:bell"
    await world.own()
    await world.arrive("T1")
    for left, wanted in ((2_000_000, 2_000_000), (1_000_000, 3_600_000)):
        world.client.pexpire(bell, left)
        await world.arrive("T2")
        assert wanted - 10_000 < world.client.pttl(bell) <= wanted


async def test_a_long_message_rings_without_itself(world: World) -> None:
    await world.own()
    await world.arrive("T1", envelope=b"x" * 16384)
    await world.arrive("T2", envelope=b"x" * 16385)
    assert ["e" in bell for bell in world.bells()] == [True, False]
    assert len(world.entries(world.a.inbox)[1][1]["e"]) == 16385


async def test_nobody_is_rung_when_nobody_owns(world: World) -> None:
    token = await world.own()
    await world.scripts.release(world.a, token=token, hold_ms=1)
    await world.arrive()
    assert world.bells() == []


async def test_a_broken_bell_does_not_break_a_send(world: World) -> None:
    await world.own()
    world.spoil(f"{world.shared.bell_head}w1}}:bell")
    await world.arrive()
    assert len(world.entries(world.a.inbox)) == 1


async def test_wrong_numbers_of_arguments_are_refused(world: World) -> None:
    sha = await world.connection.execute("SCRIPT", "LOAD", SCRIPTS["send"].source)
    with world.untouched():
        args: list[str | bytes | int] = [world.shared.reg, world.a.inbox, world.a.marker("T"), world.a.own]
        reply = await world.connection.execute("EVALSHA", sha, 4, *args, 4, 6, "", 1000, 0, "head", "tag", "T")
    assert reply == [[b"BADARGS"]]


@pytest.mark.parametrize("kind", available_kinds())
async def test_a_full_server_refuses_sends_and_takes_commits(kind: Kind, namespace: str) -> None:
    """I19: at the limit of memory, inboxes drain."""
    with Server(kind, args=("--maxmemory-policy", "noeviction")) as server:
        connection = await Connection.open(server.url)
        world = World(connection, namespace, server.client())
        turn = await world.turn()
        await connection.execute("CONFIG", "SET", "maxmemory", 1)
        with world.untouched():
            with pytest.raises(ServerRefused) as refused:
                await world.scripts.send(to_both(world))
            assert refused.value.code == "OOM"
        assert (await world.call(turn)).status == "SENT"
        assert (await world.scripts.commit(turn, version=0, state=b"s")).status == "OK"
        connection.close()


@pytest.mark.parametrize("kind", available_kinds())
async def test_a_server_that_forgot_its_scripts_gets_them_again(kind: Kind, namespace: str) -> None:
    with Server(kind) as server:
        connection = await Connection.open(server.url)
        scripts = Scripts(connection, namespace)
        world = World(connection, namespace, server.client())
        await scripts.load()
        await connection.execute("SCRIPT", "FLUSH")
        sent = [scripts.send([Delivery(world.a, f"T{i}", "a/1", b"x")]) for i in range(20)]
        assert all(reply.status == "OK" for reply in await asyncio.gather(*sent))
        assert [fields["m"] for _, fields in world.entries(world.a.inbox)] == [f"T{i}" for i in range(20)]
        connection.close()
