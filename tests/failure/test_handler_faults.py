"""A handler fails: what it did is discarded, its caller gets a named error, nothing hangs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from autogen_core import AgentId, TopicId

from stagebell import Publisher
from stagebell.errors import CantHandle, MessageTooLarge, StateTooLarge, UnregisteredType
from tests.failure.agents import Count, File, Measure
from tests.failure.processes import Workers
from tests.failure.troubles import ALARMS, Empty, NoOneKnows, Trouble
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

AGENT = AgentId("troubled", "t")
WITHIN = 5.0

# What goes wrong in a call, and what its caller gets.
ERRORS: dict[str, type[Exception]] = {
    "ValueError": ValueError,
    "empty": Empty,
    "large state": StateTooLarge,
    "large reply": MessageTooLarge,
    "large publish": MessageTooLarge,
    "strange reply": ValueError,  # AutoGen's own check of what a handler returns
    "strange publish": UnregisteredType,
    "unknown reply": UnregisteredType,
    "bad state": RuntimeError,
}


@pytest.fixture
async def publisher(server: Server, workers: Workers) -> AsyncIterator[Publisher]:
    """A client of one worker."""
    await workers.start("troubles")
    async with Publisher(server.url, namespace=workers.namespace) as publisher:
        publisher.register(Count)
        yield publisher


async def at_rest(view: View) -> None:
    await eventually(lambda: view.backlog() == 0, within=WITHIN)
    await eventually(lambda: not view.left_behind(), within=WITHIN)


async def test_what_a_failed_call_did_is_discarded_and_its_caller_gets_the_error(
    publisher: Publisher, view: View
) -> None:
    done = 0
    for number, (kind, error) in enumerate(ERRORS.items(), 1):
        with pytest.raises(error) as found:
            await publisher.call(Trouble(kind=kind, number=number), AGENT, timeout=WITHIN)
        assert type(found.value) is error, kind
        reply = await publisher.call(Trouble(kind="none", number=number), AGENT, timeout=WITHIN)
        done += 1 + (kind == "unknown reply")  # that one is known to the agent, only its caller cannot read it
        assert reply.count == done, f"state after {kind!r}"
    await at_rest(view)
    numbers = list(range(1, len(ERRORS) + 1))
    unread = list(ERRORS).index("unknown reply") + 1
    heard = view.state("troubled", "t")["heard"]
    assert heard == {"none": numbers, "unknown reply": [unread]}
    passed_on = view.state("tally", "trouble")["heard"]["t"]
    assert passed_on == sorted([*numbers, unread])
    assert not view.dead_letters()


# What goes wrong in a publish, and what the reason of its dead letter names.
REASONS = {
    "ValueError": "number 1 is no good",
    "empty": "Empty",
    "large state": "the limit is",
    "large publish": "the limit is",
    "strange publish": "NoOneKnows",
    "bad state": "cannot be saved",
}


@pytest.mark.parametrize(("kind", "reason"), REASONS.items(), ids=REASONS.keys())
async def test_a_failed_publish_is_set_aside_with_its_reason_and_the_next_one_is_handled(
    publisher: Publisher, view: View, kind: str, reason: str
) -> None:
    await publisher.publish(Trouble(kind=kind, number=1), TopicId(ALARMS, "t"))
    await publisher.publish(Trouble(kind="none", number=2), TopicId(ALARMS, "t"))
    await at_rest(view)
    [letter] = view.dead_letters()
    assert reason in letter["reason"]
    assert letter["a"] == "troubled/t"
    assert view.state("troubled", "t")["heard"] == {"none": [2]}
    assert view.state("tally", "trouble")["heard"] == {"t": [2]}


async def test_what_a_client_does_wrong_is_refused_with_a_named_error(publisher: Publisher, view: View) -> None:
    with pytest.raises(MessageTooLarge, match="max_message_bytes"):
        await publisher.publish(Trouble(kind="x" * 2_000_000), TopicId(ALARMS, "t"))
    with pytest.raises(MessageTooLarge):
        await publisher.call(Trouble(kind="x" * 2_000_000), AGENT, timeout=WITHIN)
    with pytest.raises(CantHandle, match="NoOneKnows"):
        await publisher.call(NoOneKnows(), AGENT, timeout=WITHIN)
    with pytest.raises(CantHandle, match="Measure"):
        await publisher.call(Measure(sender="client", number=1), AGENT, timeout=WITHIN)
    await publisher.publish(File(sender="client", number=1), TopicId(ALARMS, "t"))  # passed over
    await at_rest(view)
    assert not view.dead_letters()
    assert view.state("troubled", "t")["heard"] == {}
