"""Requests to one script that leave together: each has its own outcome, and those they concern hear of them once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stagebell.errors import ServerRefused, ServerUnavailable
from stagebell.runtime.redis.ears import told
from stagebell.runtime.redis.joint import MOST, MOST_BYTES
from stagebell.runtime.redis.requests import Delivery, ReplyTo
from stagebell.runtime.redis.results import EndReply
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


def calls(world: World, script: str) -> int:
    """How many commands the server has run as this script: it counts EVALSHA only."""
    return int(world.client.info("commandstats").get(f"cmdstat_{script}", {}).get("calls", 0))


async def test_requests_to_one_script_are_one_command(world: World) -> None:
    await world.own()
    before = calls(world, "evalsha")
    sends = [world.scripts.send([Delivery(world.a, f"T{i}", "a/1", b"%d" % i)]) for i in range(MOST + 1)]
    replies = await asyncio.gather(*sends)
    assert calls(world, "evalsha") - before == 2
    entries = world.entries(world.a.inbox)
    assert [reply.ids for reply in replies] == [(id,) for id, _ in entries]
    assert [fields["e"] for _, fields in entries] == [str(i) for i in range(MOST + 1)]


async def test_large_ones_do_not_leave_together(world: World) -> None:
    """A server that takes in one command what 64 large messages weigh keeps everybody else waiting."""
    before = calls(world, "evalsha")
    half, whole = b"e" * (MOST_BYTES // 2), b"e" * (2 * MOST_BYTES)
    envelopes = [b"e", whole, half, half, b"e"]
    sends = [world.scripts.send([Delivery(world.a, f"T{i}", "a/1", each)]) for i, each in enumerate(envelopes)]
    await asyncio.gather(*sends)
    assert [len(fields["e"]) for _, fields in world.entries(world.a.inbox)] == [len(each) for each in envelopes]
    assert calls(world, "evalsha") - before == 4  # 1 | whole | half half | 1


async def test_each_is_refused_for_itself(world: World) -> None:
    """I16: what is refused writes nothing; what comes before and after it in the same command takes effect."""
    turns = [await world.turn(f"T{i}", f"a/{i}", token) for token in [await world.own()] for i in range(3)]
    zombie = turns[1]._replace(token="0:gone:n")
    commits = [world.scripts.commit(turn, version=0, state=b"s") for turn in (turns[0], zombie, turns[2])]
    assert await asyncio.gather(*commits) == [EndReply("OK", 1), EndReply("FENCED"), EndReply("OK", 1)]
    assert [fields["m"] for _, fields in world.entries(world.a.inbox)] == ["T1"]
    assert world.client.exists(world.a.state("1")) == 0


async def test_a_spoilt_key_is_named_to_the_one_whose_it_is(world: World) -> None:
    world.spoil(world.b.inbox)
    sends = [Delivery(keys, "T", "x/1", b"e") for keys in (world.a, world.b, world.a)]
    replies = await asyncio.gather(*(world.scripts.send([send]) for send in sends))
    assert [reply.status for reply in replies] == ["OK", "BADKEY", "OK"]
    assert replies[0].ids == replies[2].ids  # sent twice, taken once


async def test_later_ones_build_on_earlier_ones(world: World) -> None:
    token = await world.own()
    first, second = [await world.turn(turn_id, "a/1", token) for turn_id in ("T1", "T2")]
    commits = [world.scripts.commit(turn, version=version) for turn, version in ((first, 0), (second, 1))]
    assert await asyncio.gather(*commits) == [EndReply("OK", 1), EndReply("OK", 2)]


async def test_an_error_in_one_is_the_outcome_of_that_one(world: World) -> None:
    turn = await world.turn()
    good = world.scripts.commit(turn, version=0, state=b"s")
    bad = world.scripts.send([Delivery(world.a, "T", "a/1", b"e")], window_ms=-1)
    also = world.scripts.send([Delivery(world.a, "T2", "a/1", b"e")])
    outcomes = await asyncio.gather(good, bad, also, return_exceptions=True)
    assert isinstance(outcomes[1], ServerRefused), outcomes
    assert [getattr(outcome, "status", "") for outcome in outcomes] == ["OK", "", "OK"]


async def test_what_they_tell_one_reader_is_one_entry(world: World) -> None:
    token = await world.own()
    await asyncio.gather(*(world.scripts.send([Delivery(world.a, f"T{i}", "a/1", b"%d" % i)]) for i in range(3)))
    ids = [id for id, _ in world.entries(world.a.inbox)]
    ((_, flat),) = await world.connection.execute("XRANGE", f"{world.shared.bell_head}w1}}:bell", "-", "+")
    heads = [f"{world.a.tag} {ids[i]} {ids[i - 1] if i else '-'} T{i} a/1" for i in range(3)]
    assert told(flat) == [{b"k": b"in", b"h": heads[i].encode(), b"e": b"%d" % i} for i in range(3)]

    stream = world.shared.client_replies("me")
    turns = [(await world.turn("T9", "a/9", token)), (await world.turn("T8", "a/8", token))]
    commits = [
        world.scripts.commit(turn, version=0, reply_to=ReplyTo.client(stream, turn.turn_id), reply=b"r")
        for turn in turns
    ]
    await asyncio.gather(*commits)
    ((_, flat),) = await world.connection.execute("XRANGE", stream, "-", "+")
    assert told(flat) == [{b"k": b"rep", b"j": id, b"e": b"r"} for id in (b"T9", b"T8")]


async def test_what_stands_between_them_keeps_its_place(world: World) -> None:
    marker = world.a.marker("T1")
    sent = world.scripts.send([Delivery(world.a, "T1", "a/1", b"e")])
    between = world.connection.execute("GET", marker)
    after = world.scripts.send([Delivery(world.a, "T2", "a/1", b"e")])
    outcomes: list[Any] = await asyncio.gather(sent, between, after)
    assert outcomes[1].decode() == outcomes[0].ids[0]


async def test_all_of_them_hear_of_the_end_of_the_connection(world: World) -> None:
    sends = [world.scripts.send([Delivery(world.a, f"T{i}", "a/1", b"e")]) for i in range(2)]
    world.connection.close()
    sends.append(world.scripts.send([Delivery(world.a, "T3", "a/1", b"e")]))
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ServerUnavailable] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
