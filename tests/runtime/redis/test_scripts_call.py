"""begin and call: attempts are counted, each call leaves once, and only from a turn that may."""

from __future__ import annotations

from typing import Any

import pytest

from stagebell.errors import ServerRefused
from stagebell.runtime.redis.requests import Delivery, ReplyTo, Turn
from stagebell.runtime.redis.results import CallReply
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


async def answer(world: World, caller: Turn, k: str = "0.0", payload: bytes = b"answer") -> None:
    """Let agent b/1 answer the call."""
    token = await world.own(world.b, worker="w2")
    entry_id = next(i for i, f in world.entries(world.b.inbox) if f["m"] == f"{caller.turn_id}.{k}")
    turn = Turn(world.b, token, "b/1", entry_id, f"{caller.turn_id}.{k}")
    await world.scripts.begin(turn)
    to = ReplyTo.caller(world.a, caller.turn_id, k)
    assert (await world.scripts.commit(turn, version=None, reply_to=to, reply=payload)).status == "OK"


async def test_each_owner_that_starts_a_turn_is_counted_once(world: World) -> None:
    turn = await world.turn()
    with world.untouched():
        assert await world.scripts.begin(turn) == 1
    await world.scripts.release(world.a, token=turn.token, hold_ms=0)
    token = await world.own(worker="w2", nonce="n2")
    assert await world.scripts.begin(turn._replace(token=token)) == 2
    assert await world.scripts.attempts(world.a) == {"T": 2}
    assert world.hash(world.a.run) == {"T": f"2:{token}"}


async def test_a_turn_without_input_does_not_start(world: World) -> None:
    turn = await world.turn()
    with world.untouched():
        assert await world.scripts.begin(turn._replace(entry_id="1-1")) == 0
        # the same entry id with another message: the server lost its last writes and gave the id out again
        assert await world.scripts.begin(turn._replace(turn_id="other")) == 0


async def test_a_zombie_does_not_start_a_turn(world: World) -> None:
    turn = await world.turn()
    with world.untouched():
        assert await world.scripts.begin(turn._replace(token="0:w0:n")) == -1


async def test_a_call_is_sent_once(world: World) -> None:
    turn = await world.turn()
    sent = await world.call(turn)
    assert sent == CallReply("SENT", 0, 0, entry_id=world.entries(world.b.inbox)[0][0])
    assert world.hash(world.a.journal("T")) == {"0.0": f"Sdigest-8{sent.entry_id} T.0.0 {world.b.tag}"}
    with world.untouched():
        assert await world.call(turn) == CallReply("PENDING", 0, 0, entry_id=sent.entry_id)


async def test_a_call_rings_the_owner_of_the_callee(world: World) -> None:
    await world.own(world.b, worker="w2")
    sent = await world.call(await world.turn())
    header = f"{world.b.tag} {sent.entry_id} - T.0.0 b/1"
    assert world.bells("w2") == [{"k": "in", "h": header, "e": "request"}]


async def test_a_reply_is_kept_in_the_journal_and_rings_the_caller(world: World) -> None:
    turn = await world.turn()
    sent = await world.call(turn)
    await answer(world, turn)
    ring = {"k": "rep", "p": world.a.tag, "t": "T", "j": "0.0", "i": sent.entry_id, "e": "answer"}
    assert world.bells()[-1] == ring
    with world.untouched():
        assert await world.call(turn) == CallReply("REPLY", 1, 0, reply=b"answer")


async def test_a_long_reply_rings_without_itself(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)
    await answer(world, turn, payload=b"y" * 16385)
    assert "e" not in world.bells()[-1]
    assert (await world.call(turn)).reply == b"y" * 16385


async def test_another_call_in_the_same_place_is_noticed(world: World) -> None:
    turn = await world.turn()
    await world.call(turn)
    with world.untouched():
        assert await world.call(turn, digest="DIGEST-9") == CallReply("CHANGED", detail="digest-8")
    await answer(world, turn)
    assert (await world.call(turn, digest="DIGEST-9")).status == "CHANGED"


async def test_no_call_leaves_a_zombie_or_a_turn_whose_input_is_gone(world: World) -> None:
    """I4: no effect leaves such a turn."""
    turn = await world.turn()
    with world.untouched():
        assert (await world.call(turn._replace(token="0:w0:n"))).status == "FENCED"
        assert (await world.call(turn._replace(turn_id="unknown"))).status == "GONE"
    await world.scripts.commit(turn, version=0)
    with world.untouched():
        assert (await world.call(turn)).status == "GONE"


@pytest.mark.parametrize("memory", [{"known_replies": 1}, {"known_savepoints": 1}])
async def test_a_store_behind_the_memory_of_the_turn_is_noticed(world: World, memory: dict[str, Any]) -> None:
    turn = await world.turn()
    with world.untouched():
        assert (await world.call(turn, **memory)).status == "STALE"


async def test_no_call_leaves_a_turn_that_began_with_another_state(world: World) -> None:
    turn = await world.turn()
    world.client.hset(turn.state_key, mapping={"v": 2, "d": "{}"})
    for version in (0, 1, 3):
        with world.untouched():
            assert (await world.call(turn, version=version)).status == "STALE"
    assert (await world.call(turn, version=2)).status == "SENT"


async def test_a_callee_found_in_an_older_registry_is_refused(world: World) -> None:
    turn = await world.turn()
    await world.scripts.register([("set", "t:b", "{}")])
    with world.untouched():
        stale = await world.call(turn, registry_version=0)
        assert stale == CallReply("STALE_REGISTRY", detail="1")
    await world.call(turn, registry_version=1)
    await world.scripts.register([("del", "t:b", "")])
    # what was sent stays sent
    assert (await world.call(turn, registry_version=1)).status == "PENDING"


@pytest.mark.parametrize("which", ["own", "hold", "journal", "run", "savepoints", "dest", "reg"])
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    turn = await world.turn()
    key = {
        "journal": world.a.journal("T"),
        "savepoints": world.a.savepoints("T"),
        "dest": world.b.inbox,
        "reg": world.shared.reg,
    }.get(which) or getattr(world.a, which)
    world.spoil(key)
    with world.untouched():
        assert await world.call(turn, registry_version=0) == CallReply("BADKEY", detail=key)


@pytest.mark.parametrize("which", ["own", "hold", "inbox", "run"])
async def test_a_start_refuses_keys_of_a_wrong_type(world: World, which: str) -> None:
    turn = await world.turn()
    world.spoil(getattr(world.a, which))
    with world.untouched(), pytest.raises(ServerRefused) as refused:
        await world.scripts.begin(turn)
    assert refused.value.code in ("BADKEY", "WRONGTYPE")


async def test_a_digest_of_another_length_is_refused(world: World) -> None:
    turn = await world.turn()
    with world.untouched():
        assert (await world.call(turn, digest="short")).status == "BADARGS"


async def test_a_call_is_withdrawn_while_nobody_has_answered(world: World) -> None:
    turn = await world.turn()
    sent = await world.call(turn)
    to = ReplyTo.caller(world.a, "T", "0.0")
    request = {"entry_id": sent.entry_id, "turn_id": "T.0.0", "reply_to": to, "failure": b"undeliverable"}
    assert await world.scripts.withdraw(world.b, **request) is True
    assert world.entries(world.b.inbox) == []
    with world.untouched():
        assert await world.scripts.withdraw(world.b, **request) is False
    assert await world.call(turn) == CallReply("REPLY", 1, 0, reply=b"undeliverable")


async def test_a_callee_cannot_answer_a_withdrawn_call(world: World) -> None:
    caller = await world.turn()
    sent = await world.call(caller)
    token = await world.own(world.b, worker="w2")
    callee = Turn(world.b, token, "b/1", sent.entry_id, "T.0.0")
    await world.scripts.begin(callee)
    await world.scripts.record(callee, "name", "noted down", nonce="w2.1")
    world.client.hset(world.b.savepoints("T.0.0"), mapping={"0": "state", "#n": 1})
    to = ReplyTo.caller(world.a, "T", "0.0")
    await world.scripts.withdraw(world.b, entry_id=sent.entry_id, turn_id="T.0.0", reply_to=to, failure=b"late")
    assert world.hash(world.b.run) == {}
    assert not world.client.exists(world.b.journal("T.0.0"), world.b.savepoints("T.0.0"))
    with world.untouched():
        reply = await world.scripts.commit(callee, version=0, reply_to=to, reply=b"answer")
        assert reply.status == "DUP"


async def test_an_answered_call_is_not_withdrawn(world: World) -> None:
    turn = await world.turn()
    sent = await world.call(turn)
    await answer(world, turn)
    to = ReplyTo.caller(world.a, "T", "0.0")
    with world.untouched():
        withdrawn = world.scripts.withdraw(world.b, entry_id=sent.entry_id, turn_id="T.0.0", reply_to=to)
        assert await withdrawn is False


async def test_a_call_with_another_outcome_is_not_withdrawn_though_its_request_still_lies_there(
    world: World,
) -> None:
    sent = await world.call(await world.turn())
    world.client.hset(world.a.journal("T"), mapping={"0.0": "Rdigest-8timed out", "#r": 1})
    to = ReplyTo.caller(world.a, "T", "0.0")
    with world.untouched():
        withdrawn = world.scripts.withdraw(world.b, entry_id=sent.entry_id, turn_id="T.0.0", reply_to=to)
        assert await withdrawn is False


async def test_a_client_withdraws_its_own_request(world: World) -> None:
    entry_id = await world.arrive()
    to = ReplyTo.client(world.shared.client_replies("me"), "c1")
    with world.untouched():
        assert await world.scripts.withdraw(world.a, entry_id="1-1", turn_id="T", reply_to=to) is False
    assert await world.scripts.withdraw(world.a, entry_id=entry_id, turn_id="T", reply_to=to) is True
    assert world.entries(world.a.inbox) == []


@pytest.mark.parametrize("which", ["inbox", "run", "journal"])
async def test_a_withdrawal_refuses_keys_of_a_wrong_type(world: World, which: str) -> None:
    sent = await world.call(await world.turn())
    world.spoil(world.a.journal("T") if which == "journal" else getattr(world.b, which))
    to = ReplyTo.caller(world.a, "T", "0.0")
    with world.untouched(), pytest.raises(ServerRefused) as refused:
        await world.scripts.withdraw(world.b, entry_id=sent.entry_id, turn_id="T.0.0", reply_to=to)
    assert refused.value.code == "BADKEY"


async def test_idle_is_the_sum_of_all_inboxes(world: World) -> None:
    await world.scripts.send([Delivery(world.a, "T1", "a/1", b"x"), Delivery(world.a, "T2", "a/2", b"x")])
    await world.scripts.send([Delivery(world.b, "T3", "b/1", b"x")])
    assert await world.scripts.idle([world.a.inbox, world.b.inbox, "sb:{none}:in"]) == 3
    assert await world.scripts.idle([]) == 0
