"""acquire, renew, release, break_hold: one token at a time passes the fence."""

from __future__ import annotations

import pytest

from stagebell.errors import ServerRefused
from stagebell.runtime.redis.requests import Nested, Turn
from stagebell.runtime.redis.results import Grant, Taken
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


async def test_a_free_partition_is_granted(world: World) -> None:
    grant = await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000)
    assert grant == Grant("1:w1:n1", 1, "", ())
    stored = world.hash(world.a.own)
    assert int(stored.pop("until")) > 1_600_000_000_000
    assert stored == {"tok": "1:w1:n1", "epoch": "1", "owner": "w1", "prev": ""}


async def test_the_same_request_repeated_gets_the_same_grant(world: World) -> None:
    await world.scripts.acquire(world.a, worker="w0", nonce="n0", ttl_ms=10, now="1000")
    first = await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000, now="2000")
    with world.untouched():
        again = await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000, now="3000")
    assert again == first == Grant("2:w1:n1", 2, "1:w0:n0", ())


async def test_a_partition_with_a_living_lease_is_refused(world: World) -> None:
    await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000, now="10000")
    with world.untouched():
        answer = await world.scripts.acquire(world.a, worker="w2", nonce="n", ttl_ms=3000, now="11000")
    assert answer == Taken("w1", 2000)


async def test_an_expired_lease_is_granted_anew_with_a_new_token(world: World) -> None:
    old = await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000, now="10000")
    new = await world.scripts.acquire(world.a, worker="w2", nonce="n2", ttl_ms=3000, now="13000")
    assert isinstance(old, Grant)
    assert new == Grant("2:w2:n2", 2, old.token, ())
    with world.untouched():
        assert await world.scripts.renew(world.a, token=old.token, ttl_ms=3000) is False


async def test_a_token_is_never_given_twice_although_the_server_forgets_the_last_grant(world: World) -> None:
    """I2: after a failover that lost it the number of a grant is given out again; its token is another all the same."""
    first = await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000, now="10000")
    world.client.delete(world.a.own)
    second = await world.scripts.acquire(world.a, worker="w1", nonce="n2", ttl_ms=3000, now="10000")
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert first.epoch == second.epoch
    assert first.token != second.token
    assert await world.scripts.renew(world.a, token=first.token, ttl_ms=3000) is False


async def test_the_number_of_a_grant_alone_opens_nothing(world: World) -> None:
    turn = await world.turn()
    number = turn.token.partition(":")[0]
    with world.untouched():
        refused = await world.scripts.commit(turn._replace(token=f"{number}:w9:n9"), version=0, state=b"new")
    assert refused.status == "FENCED"


async def test_a_worker_that_asks_with_a_new_nonce_waits_for_its_own_lease(world: World) -> None:
    await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000, now="10000")
    answer = await world.scripts.acquire(world.a, worker="w1", nonce="n2", ttl_ms=3000, now="11000")
    assert answer == Taken("w1", 2000)


async def test_an_expired_lease_that_nobody_took_can_be_renewed(world: World) -> None:
    grant = await world.scripts.acquire(world.a, worker="w1", nonce="n1", ttl_ms=3000, now="10000")
    assert isinstance(grant, Grant)
    assert await world.scripts.renew(world.a, token=grant.token, ttl_ms=3000, now="20000") is True
    assert world.hash(world.a.own)["until"] == "23000"


async def test_a_release_leaves_holds_that_the_next_owner_is_told_of(world: World) -> None:
    token = await world.own()
    assert await world.scripts.release(world.a, token=token, hold_ms=500, turns=[("a/1", "T")], now="1000") is True
    assert world.hash(world.a.hold) == {"a/1": f"1500|{token}|T"}
    grant = await world.scripts.acquire(world.a, worker="w2", nonce="n", ttl_ms=3000)
    assert grant == Grant("2:w2:n", 2, f"released:{token}", ("a/1",))


async def test_a_repeated_release_changes_nothing(world: World) -> None:
    token = await world.own()
    await world.scripts.release(world.a, token=token, hold_ms=500)
    with world.untouched():
        assert await world.scripts.release(world.a, token=token, hold_ms=500, turns=[("a/1", "T")]) is False


async def test_a_held_agent_is_closed_to_the_new_owner_and_open_to_the_old_one(world: World) -> None:
    old = await world.turn()
    await world.scripts.release(world.a, token=old.token, hold_ms=500, turns=[("a/1", "T")], now="1000")
    new_token = await world.own(worker="w2")
    new, third = old._replace(token=new_token), old._replace(token="0:w0:n")
    with world.untouched():
        assert await world.scripts.begin(third) == -1
        assert await world.scripts.begin(new) == -1
        assert (await world.scripts.commit(new, version=0)).status == "FENCED"
        assert (await world.scripts.fail(new, has_state=True)).status == "FENCED"
        assert (await world.call(new)).status == "FENCED"
        # of another agent the old token may do nothing
        other = Turn(world.a, old.token, "a/2", old.entry_id, old.turn_id)
        assert (await world.scripts.commit(other, version=0)).status == "FENCED"
    assert (await world.call(old)).status == "SENT"
    assert (await world.scripts.commit(old, version=0, state=b"s")).status == "OK"
    assert world.hash(world.a.hold) == {}
    assert (await world.scripts.commit(old, version=1)).status == "FENCED"


async def test_the_end_of_a_held_turn_rings_the_new_owner(world: World) -> None:
    """The agent's messages start at once, without anybody looking for them."""
    old = await world.turn()
    await world.scripts.release(world.a, token=old.token, hold_ms=500, turns=[("a/1", "T")])
    await world.own(worker="w2")
    assert (await world.scripts.commit(old, version=0)).status == "OK"
    freed = {"k": "freed", "p": world.a.tag, "a": "a/1", "e": ""}
    assert world.bells("w2") == [freed]
    assert world.bells("w1") == [bell for bell in world.bells("w1") if bell["k"] != "freed"]


async def test_an_agent_with_several_open_turns_is_held_until_the_last_has_ended(world: World) -> None:
    first = await world.turn("T1")
    second = await world.turn("T2", token=first.token)
    await world.scripts.release(world.a, token=first.token, hold_ms=500, turns=[("a/1", "T1"), ("a/1", "T2")])
    await world.own(worker="w2")
    assert (await world.scripts.commit(first, version=None)).status == "OK"
    assert world.hash(world.a.hold)["a/1"].endswith(f"|{first.token}|T2")
    assert world.bells("w2") == []
    assert (await world.scripts.fail(second, has_state=False)).status == "OK"
    assert world.hash(world.a.hold) == {}
    assert [bell["k"] for bell in world.bells("w2")] == ["freed"]


async def test_a_turn_that_was_let_into_a_held_agent_leaves_the_hold(world: World) -> None:
    outer = await world.turn()
    await world.scripts.release(world.a, token=outer.token, hold_ms=500, turns=[("a/1", "T")])
    inner = Turn(world.a, outer.token, "a/1", await world.arrive("T2"), "T2")
    assert (await world.scripts.commit(inner, version=None, nested=Nested("T", "0  0.0 ", 0))).status == "OK"
    refused = Turn(world.a, outer.token, "a/1", await world.arrive("T3"), "T3")
    assert (await world.scripts.fail(refused, has_state=False)).status == "OK"
    assert world.hash(world.a.hold)["a/1"].endswith(f"|{outer.token}|T")


async def test_a_hold_is_dropped_by_its_holder_alone(world: World) -> None:
    old = await world.turn()
    await world.scripts.release(world.a, token=old.token, hold_ms=500, turns=[("a/1", "T")])
    token = await world.own(worker="w2")
    with world.untouched():
        assert await world.scripts.drop_hold(old._replace(token=token)) is False
        assert await world.scripts.drop_hold(old._replace(token="0:w0:n")) is False
    assert await world.scripts.drop_hold(old) is True
    assert world.hash(world.a.hold) == {}
    assert [bell["k"] for bell in world.bells("w2")] == ["freed"]
    with world.untouched():
        assert await world.scripts.drop_hold(old) is False


async def test_the_hold_of_a_worker_that_is_gone_is_broken_at_once(world: World) -> None:
    old = await world.own()
    await world.scripts.release(world.a, token=old, hold_ms=500, turns=[("a/1", "T")], now="1000")
    token = await world.own(worker="w2")
    assert await world.scripts.break_hold(world.a, token=token, agent="a/1", gone=True, now="1001") == 1
    assert world.hash(world.a.hold) == {}


async def test_the_lease_of_a_worker_that_has_died_is_ended_and_of_no_other(world: World) -> None:
    token = await world.own(worker="w1")
    with world.untouched():
        assert await world.scripts.gone(world.a, worker="w2", heirs=["w3"]) is False
        assert await world.scripts.gone(world.b, worker="w2", heirs=["w3"]) is False
    assert await world.scripts.gone(world.a, worker="w1", heirs=["w2", "w3"]) is True
    told = {"k": "free", "p": world.a.tag, "w": "stop", "o": "w1", "e": ""}
    assert (world.bells("w2"), world.bells("w3")) == ([told], [told])
    grant = await world.scripts.acquire(world.a, worker="w2", nonce="n", ttl_ms=3000)
    assert grant == Grant("2:w2:n", 2, token, ()), "the next owner knows that nothing was released"
    with world.untouched():
        assert await world.scripts.gone(world.a, worker="w1", heirs=["w2"]) is False
        assert await world.scripts.renew(world.a, token=token, ttl_ms=3000) is False


async def test_what_a_dead_worker_had_sent_takes_effect_until_another_owns_it(world: World) -> None:
    turn = await world.turn()
    await world.scripts.gone(world.a, worker="w1", heirs=[])
    assert (await world.scripts.commit(turn, version=0, state=b"s")).status == "OK"
    assert await world.scripts.renew(world.a, token=turn.token, ttl_ms=3000) is True


async def test_a_hold_is_broken_when_it_is_over_and_only_by_the_owner(world: World) -> None:
    old = await world.own()
    await world.scripts.release(world.a, token=old, hold_ms=500, turns=[("a/1", "T")], now="1000")
    token = await world.own(worker="w2")
    with world.untouched():
        assert await world.scripts.break_hold(world.a, token=old, agent="a/1", now="9000") == -1
        assert await world.scripts.break_hold(world.a, token=token, agent="a/1", now="1499") == 0
    assert await world.scripts.break_hold(world.a, token=token, agent="a/1", now="1500") == 1
    assert world.hash(world.a.hold) == {}
    assert await world.scripts.break_hold(world.a, token=token, agent="a/1", now="1500") == 1


@pytest.mark.parametrize("key", ["own", "hold"])
async def test_keys_of_a_wrong_type_are_refused_before_any_write(world: World, key: str) -> None:
    token = await world.own()
    world.spoil(getattr(world.a, key))
    with world.untouched():
        with pytest.raises(ServerRefused) as refused:
            await world.scripts.acquire(world.a, worker="w2", nonce="n", ttl_ms=1)
        assert refused.value.code == "WRONGTYPE"
        with pytest.raises(ServerRefused):
            await world.scripts.release(world.a, token=token, hold_ms=1, turns=[("a/1", "T")])
        with pytest.raises(ServerRefused):
            await world.scripts.break_hold(world.a, token=token, agent="a/1")
        if key == "own":
            with pytest.raises(ServerRefused):
                await world.scripts.renew(world.a, token=token, ttl_ms=1)


async def test_the_lease_runs_on_the_clock_of_the_server(world: World) -> None:
    await world.scripts.acquire(world.a, worker="w1", nonce="n", ttl_ms=3000)
    seconds, micros = world.client.time()
    until = int(world.hash(world.a.own)["until"])
    assert 0 <= until - (seconds * 1000 + micros // 1000) <= 3000
