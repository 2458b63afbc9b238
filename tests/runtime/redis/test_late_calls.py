"""Calls of tasks that outlive their turn: each ends in its reply, whenever the turn happens to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from autogen_core import AgentId, MessageContext, TopicId, TypeSubscription

from stagebell import RedisRuntime
from stagebell.runtime.redis.replies import Replies
from stagebell.runtime.redis.requests import ReplyTo
from tests.support.agents import Answer, Ask, Doing, Note
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

ROUNDS = 60


@pytest.fixture
async def runtime(server: Server, namespace: str) -> AsyncIterator[RedisRuntime]:
    async with RedisRuntime(server.url, namespace=namespace) as runtime:
        yield runtime


async def _echo(agent: Doing, message: Ask, ctx: MessageContext) -> Answer:
    await asyncio.sleep(0)
    return Answer(number=message.number)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("keeps", [False, True], ids=["without state", "with state"])
async def test_a_task_gets_its_reply_whenever_its_turn_ends(runtime: RedisRuntime, steps: int, keeps: bool) -> None:
    tasks: list[asyncio.Task[Answer]] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Answer:
        send = agent.send_message(Ask(number=message.number), AgentId("echo", str(message.number % 3)))
        tasks.append(asyncio.ensure_future(send))
        for _ in range(steps):
            await asyncio.sleep(0)
        return Answer()

    class Keeping(Doing):
        async def save_state(self) -> dict[str, int]:
            return {"asked": len(tasks)}

        async def load_state(self, state: object) -> None: ...

    await Doing.register(runtime, "echo", lambda: Doing(_echo))
    await Doing.register(runtime, "asks", lambda: (Keeping if keeps else Doing)(ask))
    calls = [runtime.send_message(Ask(number=number), AgentId("asks", "x")) for number in range(ROUNDS)]
    async with asyncio.timeout(10):
        await asyncio.gather(*calls)
        answers = await asyncio.gather(*tasks)
    assert [answer.number for answer in answers] == list(range(ROUNDS))
    await eventually(lambda: _nothing_open(runtime), within=2)


def _nothing_open(runtime: RedisRuntime) -> bool:
    node = runtime._node
    return node is not None and not node.client.replies.open and not node.services.calling


async def test_of_two_calls_with_one_id_either_may_be_cancelled(runtime: RedisRuntime) -> None:
    handled: list[int] = []
    goes_on = asyncio.Event()

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Answer:
        handled.append(message.number)
        await goes_on.wait()
        return Answer(text="the one reply")

    await Doing.register(runtime, "once", lambda: Doing(ask))
    for cancelled in (0, 1):
        goes_on.clear()
        id = f"same-{cancelled}"
        calls = [
            asyncio.ensure_future(runtime.send_message(Ask(), AgentId("once", id), message_id=id)) for _ in range(2)
        ]
        await eventually(lambda: len(handled) == cancelled + 1, within=5)  # noqa: B023
        calls[cancelled].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[cancelled]
        goes_on.set()
        async with asyncio.timeout(5):
            assert await calls[1 - cancelled] == Answer(text="the one reply")
    assert len(handled) == 2


@pytest.mark.parametrize("first_waits", [False, True])
async def test_a_reply_that_comes_at_once_finds_the_second_caller(first_waits: bool) -> None:
    replies = Replies("stream")
    callee = AgentId("once", "x")
    first = replies.expect("field", callee, ReplyTo.client("stream", "field"))

    async def wait() -> None:
        try:
            await first.answer
        finally:
            replies.forget("field", first.answer)

    waiting = asyncio.ensure_future(wait())
    if first_waits:
        await asyncio.sleep(0)
    succession = replies.succeed("field", first)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    call = await succession
    assert call is not None
    assert replies.open["field"] is call
    replies.forget("field", call.answer)
    assert not replies.open


@pytest.mark.parametrize("keeps", [False, True], ids=["without state", "with state"])
async def test_what_turns_publish_keeps_its_order_while_subscriptions_change(
    runtime: RedisRuntime, server: Server, namespace: str, keeps: bool
) -> None:
    heard: list[int] = []

    async def pass_on(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await agent.publish_message(Ask(number=message.number), TopicId("out", "x"))

    async def hear(agent: Doing, message: Ask, ctx: MessageContext) -> Answer:
        heard.append(message.number)
        return Answer()

    class Keeping(Doing):
        async def save_state(self) -> dict[str, int]:
            return {"heard": 0}

        async def load_state(self, state: object) -> None: ...

    async def nothing(*_: object) -> None: ...

    await Doing.register(runtime, "passes", lambda: (Keeping if keeps else Doing)(nothing, pass_on))
    await Doing.register(runtime, "hears", lambda: Doing(hear))
    await runtime.add_subscription(TypeSubscription("in", "passes"))
    await runtime.add_subscription(TypeSubscription("out", "hears"))
    async with RedisRuntime(server.url, namespace=namespace) as other:

        async def change() -> None:
            for number in range(100):
                await other.add_subscription(TypeSubscription(f"other-{number}", "hears"))

        async def publish() -> None:
            for number in range(400):
                await runtime.publish_message(Note(number=number), TopicId("in", "x"))

        await asyncio.gather(change(), publish())
        await eventually(lambda: len(heard) == 400, within=20)
    assert heard == list(range(400))
