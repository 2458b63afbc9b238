"""What a worker reads of a partition that it owns: in order, whatever comes in between."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import AgentId

from stagebell.runtime.redis.link import Link
from tests.runtime.redis.reading import Message, Reading
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_messages_are_handed_on_in_order(server: Server, namespace: str, link: Link) -> None:
    reading = Reading(server, link, namespace, credit=2)
    reading.add("one", "two", "three", "four")
    reading.partition.read()
    await reading.has_handed_on("one", "two")
    for entry_id in list(reading.partition.pending):
        reading.server.xdel(reading.keys.inbox, entry_id)
        reading.partition.done(entry_id)
    await reading.has_handed_on("one", "two", "three", "four")


async def test_a_read_under_way_brings_nothing_into_a_drained_partition(
    server: Server, namespace: str, link: Link
) -> None:
    """Else what came last would be handled before what was let go."""
    reading = Reading(server, link, namespace)
    reading.add("one", "two")
    reading.partition.read()
    await reading.has_handed_on("one", "two")
    reading.add("three", "four")
    (three, _), (four, _) = reading.server.xrange(reading.keys.inbox)[2:]
    reading.partition.heard(four.decode(), three.decode(), "four", "reader/x", b"{}")  # three is missing: a read begins
    reading.partition.drain()
    assert reading.forgotten == ["one", "two"]
    assert await link.ask("PING") == b"PONG"  # so the answer to the read has come, too
    assert reading.handed_on == ["one", "two"]


async def test_a_message_that_was_consumed_and_is_back_makes_all_be_read_again(
    server: Server, namespace: str, link: Link
) -> None:
    """I14: what lies in the inbox is run in the end."""
    reading = Reading(server, link, namespace)
    reading.add("one", "two")
    reading.partition.read()
    await reading.has_handed_on("one", "two")
    first = next(iter(reading.partition.pending))
    reading.partition.done(first)  # here it is consumed, there it is not: the server has lost the commit
    await reading.partition.audit()
    await reading.has_handed_on("one", "two", "one", "two")
    assert reading.forgotten == ["two"]


async def test_a_bell_from_before_all_was_forgotten_brings_nothing_back(
    server: Server, namespace: str, link: Link
) -> None:
    reading = Reading(server, link, namespace)
    reading.add("one", "two")
    reading.partition.read()
    await reading.has_handed_on("one", "two")
    one, two = list(reading.partition.pending)
    reading.consume("two")
    reading.partition.start_over()
    await reading.has_handed_on("one", "two", "one")
    reading.partition.heard(two, one, "two", "reader/x", b"{}")
    assert await link.ask("PING") == b"PONG"
    assert reading.handed_on == ["one", "two", "one"]
    reading.add("three")
    (three, _) = reading.server.xrange(reading.keys.inbox)[-1]
    reading.partition.heard(three.decode(), one, "three", "reader/x", b"{}")
    assert reading.handed_on == ["one", "two", "one", "three"]


@pytest.mark.parametrize("place", ["1-0", "2-0"])
async def test_an_entry_that_took_the_place_of_a_lost_one_is_read(
    server: Server, namespace: str, link: Link, place: str
) -> None:
    """I13: a server that went back gives ids out again, and counts alone do not tell."""
    reading = Reading(server, link, namespace)
    for id, turn in (("0-5", "one"), ("2-0", "two")):
        reading.server.xadd(reading.keys.inbox, {"m": turn, "a": "reader/x", "e": "{}"}, id=id)
    reading.partition.read()
    await reading.has_handed_on("one", "two")
    reading.server.delete(reading.keys.inbox)
    for id, turn in (("0-5", "one"), (place, "three")):
        reading.server.xadd(reading.keys.inbox, {"m": turn, "a": "reader/x", "e": "{}"}, id=id)
    for _ in range(3):
        await reading.partition.audit()
    await reading.has_handed_on("one", "two", "one", "three")
    assert reading.forgotten == ["one", "two"]


async def test_an_entry_that_came_when_several_were_lost_is_read(server: Server, namespace: str, link: Link) -> None:
    """I14: there are fewer entries than messages in memory, and one that was never read all the same."""
    reading = Reading(server, link, namespace)
    for id, turn in (("1-0", "one"), ("3-0", "two"), ("4-0", "three")):
        reading.server.xadd(reading.keys.inbox, {"m": turn, "a": "reader/x", "e": "{}"}, id=id)
    reading.partition.read()
    await reading.has_handed_on("one", "two", "three")
    reading.server.delete(reading.keys.inbox)
    for id, turn in (("1-0", "one"), ("2-0", "new")):
        reading.server.xadd(reading.keys.inbox, {"m": turn, "a": "reader/x", "e": "{}"}, id=id)
    for _ in range(3):
        await reading.partition.audit()
    await reading.has_handed_on("one", "two", "three", "one", "new")


async def test_turns_of_one_agent_are_forgotten_while_those_of_others_go_on_under_holds(
    server: Server, namespace: str, link: Link
) -> None:
    """What began after a turn that the server does not know stands on what that turn did."""
    reading = Reading(server, link, namespace)
    reading.add("refused", "began later")
    reading.add("other", agent="y")
    reading.partition.read()
    await reading.has_handed_on("refused", "began later", "other")
    for message in reading.partition.pending.values():
        assert isinstance(message, Message)
        message.held_turn = str(message.agent), message.turn_id
    assert len(reading.partition.hand_over()) == 3
    reading.partition.start_over()
    assert reading.forgotten == []  # it belongs to another worker
    reading.partition.forget_agent(AgentId("reader", "x"))
    assert reading.forgotten == ["refused", "began later"]


async def test_a_bell_for_another_entry_of_a_known_id_makes_all_be_read_again(
    server: Server, namespace: str, link: Link
) -> None:
    reading = Reading(server, link, namespace)
    reading.add("one")
    reading.partition.read()
    await reading.has_handed_on("one")
    (id,) = reading.partition.pending
    reading.partition.heard(id, "-", "one", "reader/x", b"{}")
    assert reading.forgotten == []
    reading.server.delete(reading.keys.inbox)
    reading.server.xadd(reading.keys.inbox, {"m": "two", "a": "reader/x", "e": "{}"}, id=id)
    reading.partition.heard(id, "-", "two", "reader/x", b"{}")
    await reading.has_handed_on("one", "two")
    assert reading.forgotten == ["one"]


async def test_a_wish_that_the_server_has_lost_is_forgotten_when_all_is_read_again(
    server: Server, namespace: str, link: Link
) -> None:
    reading = Reading(server, link, namespace)
    reading.add("one")
    reading.partition.read()
    await reading.has_handed_on("one")
    (id,) = reading.partition.pending
    lost, known = (
        reading.server.xadd(reading.keys.ctl, {"m": turn, "i": id, "w": "cancel"}).decode() for turn in ("one", "other")
    )
    await reading.partition.ends.look()
    assert reading.ended == [lost]
    reading.server.xdel(reading.keys.ctl, lost)
    reading.partition.start_over()
    await reading.has_handed_on("one", "one")
    assert reading.ended == [lost]
    kept = reading.server.xadd(reading.keys.ctl, {"m": "one", "i": id, "w": "cancel"}).decode()
    reading.partition.start_over()
    await reading.has_handed_on("one", "one", "one")
    assert reading.ended == [lost, kept]
    assert list(reading.partition.ends.wanted) == ["other", "one"], known


async def test_the_wish_to_end_a_message_outlives_another_of_its_turn(
    server: Server, namespace: str, link: Link
) -> None:
    """I10: an attempt that is made again makes its calls again, and may give them up again."""
    reading = Reading(server, link, namespace)
    reading.add("call", "call")
    reading.partition.read()
    await reading.has_handed_on("call", "call")
    first, second = reading.partition.pending
    for entry_id in (first, second):
        reading.server.xadd(reading.keys.ctl, {"m": "call", "i": entry_id, "w": "cancel"})
    await reading.partition.ends.look()
    reading.server.xdel(reading.keys.inbox, first)
    reading.partition.done(first)
    await eventually(lambda: reading.server.xlen(reading.keys.ctl) == 1, within=3)
    assert reading.server.xrange(reading.keys.ctl)[0][1][b"i"].decode() == second


async def test_the_wish_to_end_what_a_former_owner_has_consumed_is_forgotten(
    server: Server, namespace: str, link: Link
) -> None:
    """Nothing that was read here tells that the message was there at all."""
    reading = Reading(server, link, namespace)
    reading.add("still there")
    (there, _) = reading.server.xrange(reading.keys.inbox)[0]
    for entry_id in (b"7-0", there):
        reading.server.xadd(reading.keys.ctl, {"m": "still there", "i": entry_id, "w": "cancel"})
    await reading.partition.ends.look()
    await eventually(lambda: reading.server.xlen(reading.keys.ctl) == 1, within=3)
    assert reading.server.xrange(reading.keys.ctl)[0][1][b"i"] == there


async def test_entries_are_compared_less_and_less_often(server: Server, namespace: str, link: Link) -> None:
    reading = Reading(server, link, namespace)
    reading.add("one", "two")
    reading.partition.read()
    await reading.has_handed_on("one", "two")
    await link.submit(lambda scripts: scripts.absent(reading.keys.inbox, []))  # from now on the server knows the script
    before = times_compared(reading)
    for _ in range(32):
        await reading.partition.audit()
    assert times_compared(reading) - before == 4  # after 2, 4, 8, 16
    assert reading.forgotten == []


def times_compared(reading: Reading) -> int:
    """How often the server was asked for a script."""
    stats: dict[str, Any] = reading.server.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


async def test_a_bell_is_used_only_when_nothing_before_it_is_missing(
    server: Server, namespace: str, link: Link
) -> None:
    reading = Reading(server, link, namespace)
    reading.partition.read()
    await eventually(lambda: reading.partition.handed_on_everything, within=3)
    reading.add("one", "two")
    (one, _), (two, _) = reading.server.xrange(reading.keys.inbox)
    reading.partition.heard(two.decode(), one.decode(), "two", "reader/x", b"{}")
    await reading.has_handed_on("one", "two")
    reading.add("three")
    (three, _) = reading.server.xrevrange(reading.keys.inbox, count=1)[0]
    reading.partition.heard(three.decode(), two.decode(), "three", "reader/x", b"{}")
    assert reading.handed_on == ["one", "two", "three"]  # at once, without a read
