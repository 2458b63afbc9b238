"""What a worker reads of a partition before it is its turn: what must run again, and what others may wait for."""

from __future__ import annotations

import pytest

from stagebell.runtime.redis.link import Link
from tests.runtime.redis.reading import Reading
from tests.support.servers import Server

pytestmark = pytest.mark.integration


async def test_what_had_begun_without_savepoints_keeps_its_place(server: Server, namespace: str, link: Link) -> None:
    """A beginning that was sent again after a failover is no sign that what lies before the message is done."""
    reading = Reading(server, link, namespace)
    reading.add("one", "two", "three")
    reading.server.hset(reading.keys.run, "two", "1:token")
    reading.partition.start_over()
    await reading.has_handed_on("one", "two", "three")


async def test_what_had_begun_comes_first_when_all_is_read_again(server: Server, namespace: str, link: Link) -> None:
    """I9: its savepoints are on top of a state that nothing may change before; what came later may have lower ids."""
    reading = Reading(server, link, namespace)
    for id, turn in (("1-0", "begun"), ("2-0", "new")):
        reading.server.xadd(reading.keys.inbox, {"m": turn, "a": "reader/x", "e": "{}"}, id=id)
    reading.partition.read()
    await reading.has_handed_on("begun", "new")
    reading.server.hset(reading.keys.run, "begun", "1:token")
    reading.server.hset(reading.keys.savepoints("begun"), "#n", "1")
    reading.server.delete(reading.keys.inbox)  # the server is set back, and goes on
    for id, turn in (("0-1", "later"), ("1-0", "begun"), ("2-0", "new")):
        reading.server.xadd(reading.keys.inbox, {"m": turn, "a": "reader/x", "e": "{}"}, id=id)
    reading.partition.start_over()
    await reading.has_handed_on("begun", "new", "begun", "later", "new")
    assert reading.partition.has_consumed("2-0")  # up to there all was read
    reading.add("last")
    (last, _) = reading.server.xrevrange(reading.keys.inbox, count=1)[0]
    reading.partition.heard(last.decode(), "2-0", "last", "reader/x", b"{}")
    assert reading.handed_on[-1] == "last"


async def test_what_must_run_again_is_read_first_wherever_it_lies(server: Server, namespace: str, link: Link) -> None:
    """I9: what has savepoints after what it is nested in, though that may have a higher id since a failover.

    Of the rest each comes after what lies before it for the same agent; calls that descend from it must find it.
    """
    reading = Reading(server, link, namespace, credit=2)
    reading.add(*(f"before {n}" for n in range(300)), agent="y")
    reading.add("one", "two")
    reading.add(*(f"between {n}" for n in range(300)), agent="y")
    reading.add("begun")
    reading.add("nested", chain="caller.1")
    reading.add("caller", "last")
    for turn in ("caller", "nested", "begun"):
        reading.server.hset(reading.keys.run, turn, "1:token")
    reading.server.hset(reading.keys.savepoints("nested"), "#n", "1")
    reading.partition.read_after_others(["caller", "nested", "begun"])
    at_first = ["caller", "nested", "one", "two", "begun"]
    await reading.has_handed_on(*at_first)
    reading.partition.start_over()
    reading.partition.start_over()  # what was asked before is not answered
    await reading.has_handed_on(*at_first, *at_first)
    for entry_id in list(reading.partition.pending):
        await link.ask("XDEL", reading.keys.inbox, entry_id)  # as commits do: after questions that were sent before
        reading.partition.done(entry_id)
    await reading.has_handed_on(*at_first, *at_first, "before 0", "before 1")


async def test_calls_from_turns_are_read_beyond_the_credit(server: Server, namespace: str, link: Link) -> None:
    """Else a turn that holds the credit up might wait for one of them."""
    reading = Reading(server, link, namespace, credit=2)
    reading.add("one", "two", "three")
    reading.add("called", chain="caller.0.0")
    reading.partition.read()
    await reading.has_handed_on("one", "two", "called")
    reading.add("four")
    reading.add("called again", chain="caller.0.1")
    (four, _), (called, _) = reading.server.xrange(reading.keys.inbox)[-2:]
    reading.partition.heard(called.decode(), four.decode(), "called again", "reader/x", b'"chain":')
    await reading.has_handed_on("one", "two", "called", "called again")
    for turn in ("called", "one", "two"):
        reading.consume(turn)
    await reading.has_handed_on("one", "two", "called", "called again", "three")
    for turn in ("called again", "three"):
        reading.consume(turn)
    await reading.has_handed_on("one", "two", "called", "called again", "three", "four")


async def test_when_few_agents_hold_all_the_credit_messages_of_others_are_read(
    server: Server, namespace: str, link: Link
) -> None:
    reading = Reading(server, link, namespace, credit=10)
    reading.add(*(f"slow {number}" for number in range(12)), agent="slow")
    reading.add(*(f"quick {number}" for number in range(10)), agent="quick")
    reading.partition.read()
    first = [f"slow {number}" for number in range(10)]
    await reading.has_handed_on(*first)
    await reading.partition.audit()
    some = [f"quick {number}" for number in range(8)]
    await reading.has_handed_on(*first, *some)
    for turn in some:
        reading.consume(turn)
    await reading.partition.audit()
    await reading.has_handed_on(*first, *some, "quick 8", "quick 9")
    for turn in first:
        reading.consume(turn)
    await reading.has_handed_on(*first, *some, "quick 8", "quick 9", "slow 10", "slow 11")
