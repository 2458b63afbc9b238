"""Which marks of replies that come later go when the deadline of their call is over, and who sees to it."""

from __future__ import annotations

import pytest

from stagebell import RedisRuntime
from stagebell.runtime.redis.effects import Mark
from stagebell.runtime.redis.expiring import ExpiringMarks
from stagebell.runtime.redis.keys import PartitionKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.requests import NO_REPLY
from stagebell.testing import ManualClock
from tests.support.desk import Desk
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def mark(deadline: int, if_given_up: bytes = b"") -> Mark:
    return Mark("id", "desk/a", "", NO_REPLY, if_given_up, deadline)


@pytest.mark.parametrize("found", [False, True], ids=["set here", "found"])
async def test_a_mark_goes_after_the_deadline_unless_its_agent_wants_to_know(
    server: Server, namespace: str, link: Link, found: bool
) -> None:
    """Whoever gives the call up tells the agent with the mark, which is still there then."""
    keys, clock, client = PartitionKeys(namespace, "desk", 0), ManualClock(), server.client()
    marks = ExpiringMarks(link, clock)
    kept = {"goes": mark(clock.now_ms() + 500), "stays": mark(clock.now_ms() + 500, b"gone")}
    for turn_id, each in kept.items():
        client.hset(keys.later, turn_id, each.pack())
        if not found:
            marks.set(keys, turn_id, each)
    if found:
        marks.look(keys)
        await eventually(lambda: clock.due_in, 5)
    clock.advance(2.4)
    assert await link.ask("HLEN", keys.later) == 2
    clock.advance(60)
    assert await link.ask("HKEYS", keys.later) == [b"stays"]
    client.delete(keys.later)
    client.close()


async def test_a_mark_that_is_back_after_a_loss_of_writes_goes_again(server: Server, namespace: str) -> None:
    async with RedisRuntime(server.url, namespace=namespace, partitions=1) as runtime:
        await Desk.register(runtime, "desk", Desk)
        owned = runtime._running("a test").services.partitions
        later = PartitionKeys(namespace, "desk", 0)
        await eventually(lambda: later.tag in owned, 5)
        client, partition = server.client(), owned[later.tag]
        client.hset(later.later, "turn", mark(1).pack())
        assert isinstance(partition, Partition)
        partition.start_over()
        await eventually(lambda: not client.exists(later.later), 5)
        client.close()
