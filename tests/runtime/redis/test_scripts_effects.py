"""What a commit does beside sending messages: replies that come later, as marks that are set and taken away."""

from __future__ import annotations

import pytest

from stagebell.runtime.redis.effects import Effect, Mark, give_reply, read_mark, set_mark, take_mark
from stagebell.runtime.redis.requests import NO_REPLY, Delivery, ReplyTo, Turn
from stagebell.runtime.redis.results import EndReply
from tests.runtime.redis.test_scripts_commit import callee
from tests.runtime.redis.world import World

pytestmark = pytest.mark.integration


def mark_for(reply_to: ReplyTo) -> Mark:
    return Mark("message", "b/1", "a/1", reply_to)


async def deferred(world: World, reply_to: ReplyTo, turn_id: str = "T.0.0") -> bytes:
    """Call 0.0 of the caller was handled, and its reply put off; the mark as it is stored."""
    turn = await callee(world, turn_id)
    mark = mark_for(reply_to)
    reply = await world.scripts.commit(turn, version=None, outputs=[set_mark(world.b, turn_id, mark)])
    assert reply.status == "OK"
    return mark.pack()


async def answering(world: World, turn_id: str = "later") -> Turn:
    """A later turn of the callee."""
    await world.scripts.send([Delivery(world.b, turn_id, "b/1", b"answer now")], window_ms=0)
    return await callee(world, turn_id)


def answers(world: World, reply_to: ReplyTo, stored: bytes, turn_id: str = "T.0.0") -> list[Effect]:
    return [take_mark(world.b, turn_id, stored), *give_reply(reply_to, b"answer")]


async def test_a_call_of_a_turn_is_answered_by_another_turn(world: World) -> None:
    caller = await world.turn()
    await world.call(caller)
    to = ReplyTo.caller(world.a, "T", "0.0")
    stored = await deferred(world, to)
    assert world.hash(world.b.later) == {"T.0.0": stored.decode()}
    assert (await world.call(caller)).status == "PENDING"
    turn = await answering(world)
    assert await world.scripts.commit(turn, version=None, outputs=answers(world, to, stored)) == EndReply("OK", 0)
    assert not world.client.exists(world.b.later)
    assert (await world.call(caller)).reply == b"answer"
    bell = world.bells()[-1]
    assert (bell["k"], bell["t"], bell["j"], bell["e"]) == ("rep", "T", "0.0", "answer")


async def test_a_call_of_a_client_is_answered_to_its_stream(world: World) -> None:
    await world.call(await world.turn())
    to = ReplyTo.client(world.shared.client_replies("me"), "call-1")
    stored = await deferred(world, to)
    await world.scripts.commit(await answering(world), version=None, outputs=answers(world, to, stored))
    assert [f for _, f in world.entries(to.key)] == [{"k": "rep", "j": "call-1", "e": "answer"}]
    assert not world.client.exists(world.b.later)


async def test_several_calls_of_one_turn_are_counted(world: World) -> None:
    caller = await world.turn()
    outputs: list[Effect] = []
    for k in ("0.0", "1.0"):
        await world.call(caller, k)
        to = ReplyTo.caller(world.a, "T", k)
        outputs += answers(world, to, await deferred(world, to, f"T.{k}"), f"T.{k}")
    await world.scripts.commit(await answering(world), version=None, outputs=outputs)
    assert world.hash(world.a.journal("T"))["#r"] == "2"
    assert (await world.call(caller, "1.0", known_replies=2)).reply == b"answer"


async def test_of_two_turns_that_answer_the_second_is_refused(world: World) -> None:
    caller = await world.turn()
    await world.call(caller)
    to = ReplyTo.caller(world.a, "T", "0.0")
    outputs = answers(world, to, await deferred(world, to))
    one, two = await answering(world, "one"), await answering(world, "two")
    assert (await world.scripts.commit(one, version=None, outputs=outputs)).status == "OK"
    with world.untouched():
        assert (await world.scripts.commit(two, version=None, outputs=outputs)).status == "STALE"


async def test_an_answer_goes_nowhere_when_the_caller_has_given_up(world: World) -> None:
    caller = await world.turn()
    await world.call(caller)
    to = ReplyTo.caller(world.a, "T", "0.0")
    stored = await deferred(world, to)
    await world.scripts.commit(caller, version=0)
    await world.scripts.commit(await answering(world), version=None, outputs=answers(world, to, stored))
    assert not world.client.exists(world.a.journal("T"), world.b.later)


async def test_a_mark_that_nobody_waits_for_is_taken_away(world: World) -> None:
    await world.call(await world.turn())
    stored = await deferred(world, NO_REPLY)
    await world.scripts.commit(await answering(world), version=None, outputs=answers(world, NO_REPLY, stored))
    assert not world.client.exists(world.b.later)


async def test_a_message_that_came_again_is_answered_where_it_was_asked_last(world: World) -> None:
    await world.call(await world.turn())
    first, second = (ReplyTo.client(world.shared.client_replies(name), "call") for name in ("first", "second"))
    stored = await deferred(world, first)
    await world.scripts.send([Delivery(world.b, "T.0.0", "b/1", b"again")], window_ms=0)
    await deferred(world, second)
    turn = await answering(world)
    with world.untouched():
        assert (await world.scripts.commit(turn, version=None, outputs=answers(world, first, stored))).status == "STALE"


@pytest.mark.parametrize("which", ["later", "journal", "stream"])
async def test_a_key_of_a_wrong_type_is_named_before_any_write(world: World, which: str) -> None:
    caller = await world.turn()
    await world.call(caller)
    to = ReplyTo.caller(world.a, "T", "0.0")
    if which == "stream":
        to = ReplyTo.client(world.shared.client_replies("me"), "call")
    outputs = answers(world, to, await deferred(world, to))
    turn = await answering(world)
    key = world.b.later if which == "later" else to.key
    world.spoil(key)
    with world.untouched():
        assert await world.scripts.commit(turn, version=None, outputs=outputs) == EndReply("BADKEY", detail=key)


async def test_outputs_of_both_kinds_leave_with_one_commit(world: World) -> None:
    turn = await world.turn()
    outputs = [
        Delivery(world.b, "T.0o", "b/1", b"out"),
        set_mark(world.a, "T", mark_for(NO_REPLY)),
        Delivery(world.b, "T.1o", "b/2", b"out"),
    ]
    assert (await world.scripts.commit(turn, version=0, state=b"s", outputs=outputs)).status == "OK"
    assert [f["m"] for _, f in world.entries(world.b.inbox)] == ["T.0o", "T.1o"]
    assert list(world.hash(world.a.later)) == ["T"]


def test_a_mark_comes_back_as_it_was() -> None:
    mark = mark_for(ReplyTo.client("sb:{ns:c:me}:rep", "call"))
    assert read_mark(mark.pack()) == mark


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b'{"id":1,"to":"a/b","from":"","reply":""}'])
def test_what_is_no_mark_is_none(raw: bytes) -> None:
    assert read_mark(raw) is None
