"""A reply that comes later: a handler returns None, a later turn of the same agent answers through the handle."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from autogen_core import (
    AgentId,
    CancellationToken,
    DefaultInterventionHandler,
    DropMessage,
    MessageContext,
    TopicId,
    TypeSubscription,
)
from autogen_core.exceptions import MessageDroppedException
from pydantic import BaseModel

from stagebell import DeferredReply, agent_options, deadline, defer_reply
from stagebell.errors import AlreadyAnswered, DeadlineExceeded, DeferredReplyError, MessageTooLarge, RuntimeNotRunning
from tests.support.agents import Answer, Ask, Doing, Note, agent, echo, host
from tests.support.desk import BoundDesk, Desk, asked, opened, release, settled
from tests.support.waiting import eventually, turns_of_the_loop


class Handles(BaseModel):
    """Handles travel as what they are."""

    one: DeferredReply
    more: list[DeferredReply] = []


@agent_options(concurrency="interleaved")
class BusyDesk(Doing):
    """Its turns overlap."""


@pytest.fixture(params=[Desk, BoundDesk])
async def desk(request: pytest.FixtureRequest, runtime: Any, start: Any) -> Any:
    """A runtime with a desk, started."""
    await request.param.register(runtime, "desk", request.param)
    await start(runtime)
    return runtime


async def test_a_later_turn_answers(desk: Any) -> None:
    call = await asked(desk, "a")
    assert await release(desk, "a", answer="later") == "released"
    assert await asyncio.wait_for(call, 5) == Answer(text="later")


async def test_a_later_turn_fails_the_call(desk: Any) -> None:
    call = await asked(desk, "a")
    await release(desk, "a", error="no good")
    with pytest.raises(ValueError, match="no good"):
        await asyncio.wait_for(call, 5)


async def test_several_calls_are_answered_in_any_order(desk: Any) -> None:
    calls = {text: await asked(desk, text) for text in "abc"}
    for text in "cab":
        await release(desk, text, answer=text)
        assert (await asyncio.wait_for(calls.pop(text), 5)).text == text
        assert not any(call.done() for call in calls.values())


async def test_the_second_answer_is_refused(desk: Any) -> None:
    call = await asked(desk, "a")
    await release(desk, "a", answer="first")
    with pytest.raises(AlreadyAnswered, match="desk/default"):
        await release(desk, "a", answer="second")
    assert (await asyncio.wait_for(call, 5)).text == "first"


async def test_a_handle_that_nobody_knows_is_refused(runtime: Any, start: Any) -> None:
    async def answer(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await DeferredReply(f"{'0' * 24}:doing/default").answer("?")

    await host(runtime, "doing", answer)
    await start(runtime)
    with pytest.raises(AlreadyAnswered) as caught:
        await runtime.send_message(Ask(), agent("doing"))
    assert caught.value.id == "0" * 24


async def test_a_caller_that_gave_up_gets_nothing_and_nobody_an_error(desk: Any) -> None:
    token = CancellationToken()
    call = await asked(desk, "a", cancellation_token=token)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 5)
    assert await release(desk, "a", answer="too late") == "released"
    with pytest.raises(AlreadyAnswered):
        await release(desk, "a", answer="again")


async def test_a_deadline_ends_the_wait(desk: Any) -> None:
    with pytest.raises(DeadlineExceeded):
        with deadline(0.3):
            await asyncio.wait_for(desk.send_message(Ask(text="a"), agent("desk")), 5)
    await settled(desk)
    assert await release(desk, "a", answer="too late") == "released"


async def test_a_deadline_inside_a_turn_ends_the_wait(runtime: Any, start: Any) -> None:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        try:
            with deadline(0.3):
                return (await agent.call("desk", "a")).text
        except DeadlineExceeded:
            return "in time"

    await Desk.register(runtime, "desk", Desk)
    await host(runtime, "asker", ask)
    await start(runtime)
    assert await asyncio.wait_for(runtime.send_message(Ask(), agent("asker")), 5) == "in time"
    assert await release(runtime, "a", answer="too late") == "released"
    with pytest.raises(AlreadyAnswered):
        await release(runtime, "a", answer="again")


async def test_a_call_from_a_turn_is_answered_later(runtime: Any, start: Any) -> None:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        desks = (AgentId("desk", "default"),) * 2
        answers = await asyncio.gather(*(agent.call(desk, f"{message.text}{n}") for n, desk in enumerate(desks)))
        return [answer.text for answer in answers]

    await Desk.register(runtime, "desk", Desk)
    await host(runtime, "asker", ask)
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Ask(text="q"), agent("asker")))

    async def both_are_open() -> bool:
        await settled(runtime)
        return len(await opened(runtime)) == 2

    await eventually(both_are_open, 5)
    await release(runtime, "q1", answer="one")
    await turns_of_the_loop()
    assert not call.done()
    await release(runtime, "q0", answer="zero")
    assert await asyncio.wait_for(call, 5) == ["zero", "one"]


async def test_one_turn_answers_several_calls(runtime: Any, start: Any) -> None:
    handles: list[DeferredReply] = []

    async def desk(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "now":
            for number, handle in enumerate(handles):
                await handle.answer(number)
            return "all"
        handles.append(defer_reply())
        return None

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await asyncio.gather(*(agent.call("desk") for _ in range(3)))

    await host(runtime, "desk", desk)
    await host(runtime, "asker", ask)
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Ask(), agent("asker")))
    await eventually(lambda: len(handles) == 3, 5)
    assert await runtime.send_message(Ask(text="now"), agent("desk")) == "all"
    assert sorted(await asyncio.wait_for(call, 5)) == [0, 1, 2]


async def test_the_turn_itself_may_answer(runtime: Any, start: Any) -> None:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        handle = defer_reply()
        assert defer_reply() == handle
        if message.text == "fail":
            await handle.fail(ValueError("no"))
        else:
            await handle.answer(message.text)
        with pytest.raises(AlreadyAnswered):
            await handle.answer("again")

    await host(runtime, "doing", ask)
    await start(runtime)
    assert await runtime.send_message(Ask(text="same turn"), agent("doing")) == "same turn"
    with pytest.raises(ValueError, match="no"):
        await runtime.send_message(Ask(text="fail"), agent("doing"))


async def test_a_handler_that_defers_and_returns_something_is_told_so(runtime: Any, start: Any) -> None:
    handles: list[DeferredReply] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if handles:
            await handles[0].answer("?")
        handles.append(defer_reply())
        return "a value"

    await host(runtime, "doing", ask)
    await start(runtime)
    with pytest.raises(DeferredReplyError, match="returned a str"):
        await runtime.send_message(Ask(), agent("doing"))
    with pytest.raises(AlreadyAnswered):
        await runtime.send_message(Ask(), agent("doing"))


async def test_a_turn_that_fails_has_deferred_nothing(runtime: Any, start: Any) -> None:
    handles: list[DeferredReply] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "answer":
            await handles[0].answer("?")
        handles.append(defer_reply())
        raise ValueError("after all")

    await host(runtime, "doing", ask)
    await start(runtime)
    with pytest.raises(ValueError, match="after all"):
        await runtime.send_message(Ask(), agent("doing"))
    with pytest.raises(AlreadyAnswered):
        await runtime.send_message(Ask(text="answer"), agent("doing"))


async def test_there_must_be_a_call_to_answer(runtime: Any, start: Any) -> None:
    errors: list[str] = []

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        try:
            defer_reply()
        except DeferredReplyError as error:
            errors.append(str(error))

    await host(runtime, "doing", echo, note, topics=("news",))
    await start(runtime)
    with pytest.raises(DeferredReplyError, match="no call is being handled"):
        defer_reply()
    await runtime.publish_message(Note(), TopicId("news", "default"))
    await eventually(lambda: errors, 5)
    assert "no call is being handled" in errors[0]


async def test_only_the_agent_that_was_called_answers(desk: Any) -> None:
    call = await asked(desk, "a")
    handle = DeferredReply((await opened(desk))["a"])
    assert handle.agent == agent("desk")

    async def answer(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        await handle.answer("mine")

    await host(desk, "other", answer)
    with pytest.raises(DeferredReplyError, match="outside of the turns of desk/default"):
        await desk.send_message(Ask(), agent("other"))
    with pytest.raises(DeferredReplyError, match="outside of the turns"):
        await handle.answer("from nowhere")
    await release(desk, "a", answer="right")
    assert (await asyncio.wait_for(call, 5)).text == "right"


async def test_a_call_that_comes_back_into_an_open_turn_cannot_be_deferred(runtime: Any, start: Any) -> None:
    async def a(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "back":
            defer_reply()
            return None
        return await agent.call("b")

    async def b(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await agent.call("a", "back")

    await host(runtime, "a", a)
    await host(runtime, "b", b)
    await start(runtime)
    with pytest.raises(DeferredReplyError, match="a/default waits for a call of its own"):
        await asyncio.wait_for(runtime.send_message(Ask(), agent("a")), 5)


async def test_an_agent_whose_turns_overlap_answers_once(runtime: Any, start: Any) -> None:
    handles: list[DeferredReply] = []
    gate = asyncio.Event()
    answered: list[str] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "question":
            handles.append(defer_reply())
            return None
        try:
            await handles[0].answer(message.text)
        except AlreadyAnswered:
            return "too late"
        await gate.wait()
        answered.append(message.text)
        return "answered"

    await host(runtime, "desk", ask, cls=BusyDesk)
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Ask(text="question"), agent("desk")))
    await eventually(lambda: handles, 5)
    both = [asyncio.create_task(runtime.send_message(Ask(text=text), agent("desk"))) for text in ("one", "two")]
    await turns_of_the_loop()
    gate.set()
    assert sorted(await asyncio.wait_for(asyncio.gather(*both), 10)) == ["answered", "too late"]
    assert await asyncio.wait_for(call, 5) in ("one", "two")


async def test_a_handle_is_text(desk: Any) -> None:
    call = await asked(desk, "a")
    text = (await opened(desk))["a"]
    handle = DeferredReply.parse(json.loads(json.dumps(text)))
    assert str(handle) == text
    assert (handle.agent, handle.id) == (agent("desk"), text.partition(":")[0])
    handles = Handles(one=handle, more=[handle])
    again = Handles.model_validate_json(handles.model_dump_json())
    assert again == handles
    assert type(again.one) is type(again.more[0]) is DeferredReply
    await release(desk, "a")
    await asyncio.wait_for(call, 5)


class ChangesReplies(DefaultInterventionHandler):
    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        if isinstance(message, Answer) and message.text == "drop":
            return DropMessage
        if isinstance(message, Answer) and message.text != "here":
            return Answer(text=f"{message.text}, changed")
        return message


async def test_interventions_see_the_reply_when_it_comes(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime(intervention_handlers=[ChangesReplies()])
    await Desk.register(runtime, "desk", Desk)
    await start(runtime)
    call = await asked(runtime, "a")
    await release(runtime, "a", answer="later")
    assert (await asyncio.wait_for(call, 5)).text == "later, changed"
    call = await asked(runtime, "b")
    await release(runtime, "b", answer="drop")
    with pytest.raises(MessageDroppedException):
        await asyncio.wait_for(call, 5)


@pytest.mark.needs(any_object=False)
async def test_an_answer_that_cannot_travel_is_refused_where_it_is_given(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime(server_max_message_bytes=2000)
    await Desk.register(runtime, "desk", Desk)
    await start(runtime)
    call = await asked(runtime, "a")
    with pytest.raises(MessageTooLarge):
        await release(runtime, "a", answer="x" * 1500 + "y" * 1500)
    await release(runtime, "a", answer="short")
    assert (await asyncio.wait_for(call, 5)).text == "short"


async def test_a_turn_that_answers_may_be_told_of_it_by_a_publish(runtime: Any, start: Any) -> None:
    handles: list[DeferredReply] = []

    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        handles.append(defer_reply())

    async def note(agent: Doing, message: Note, ctx: MessageContext) -> None:
        await handles[0].answer(message.text)

    await host(runtime, "desk", ask, note)
    await runtime.add_subscription(TypeSubscription("news", "desk"))
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Ask(), agent("desk")))
    await eventually(lambda: handles, 5)
    await runtime.publish_message(Note(text="heard"), TopicId("news", "default"))
    assert await asyncio.wait_for(call, 5) == "heard"


async def test_a_stop_ends_the_wait(desk: Any) -> None:
    call = await asked(desk, "a")
    await desk.stop()
    with pytest.raises(RuntimeNotRunning):
        await asyncio.wait_for(call, 5)


async def test_a_reply_that_is_put_off_keeps_nobody_busy(runtime: Any, start: Any) -> None:
    await Desk.register(runtime, "desk", Desk)
    await start(runtime)
    call = await asked(runtime, "a")
    await asyncio.wait_for(runtime.stop_when_idle(), 5)
    with pytest.raises(RuntimeNotRunning):
        await asyncio.wait_for(call, 5)
