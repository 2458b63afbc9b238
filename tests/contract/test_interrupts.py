"""Messages that interrupt: when one comes, the turn that is open is cancelled, and the message is handled next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import MessageContext, TopicId, message_handler
from pydantic import BaseModel

from stagebell import Retry, agent_options
from stagebell.runtime.engine.options import options_of
from tests.support.agents import Answer, Ask, Doing, Note, agent, host
from tests.support.waiting import eventually


class Stop(BaseModel):
    """Interrupts."""

    text: str = ""


class StopSoftly(Stop):
    """Derived from it, and does not."""


@agent_options(interrupted_by=(Stop,), retry=Retry(first_delay=0.2, jitter=0))
class Patient(Doing):
    """May be interrupted; what it says in order is its state."""

    @message_handler
    async def on_stop(self, message: Stop, ctx: MessageContext) -> Answer:
        self.words.append(f"stop{message.text}")
        return Answer(text=" ".join(self.words))

    @message_handler
    async def on_softly(self, message: StopSoftly, ctx: MessageContext) -> Answer:
        return Answer(text=" ".join(self.words))

    async def save_state(self) -> Mapping[str, Any]:
        return {"words": self.words}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.words = list(state["words"])


class Waiting:
    """A handler that waits until it is cancelled, and what became of it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled_at = 0.0
        self.errors: list[type[BaseException]] = []

    async def __call__(self, doing: Any, message: Any, ctx: MessageContext) -> Any:
        if message.text == "quick":
            doing.words.append("quick")
            return Answer(text="quick")
        doing.words.append("begun")
        ctx.cancellation_token.add_callback(self._cancelled)
        self.entered.set()
        try:
            await self.go.wait()
            return Answer(text="went on")
        except BaseException as error:
            self.errors.append(type(error))
            raise

    def _cancelled(self) -> None:
        self.cancelled_at = time.monotonic()


PATIENT = agent("patient")


async def stop(runtime: Any, text: str = "") -> list[str]:
    """Interrupt, and learn the words that the agent knows then."""
    answer = await asyncio.wait_for(runtime.send_message(Stop(text=text), PATIENT), 10)
    return list(answer.text.split())


@pytest.fixture
async def waiting(make_runtime: Any, start: Any) -> Any:
    """A runtime with a patient that waits, started; (runtime, what waits)."""
    runtime, waits = make_runtime(cancel_grace=0.05), Waiting()
    await host(runtime, "patient", waits, waits, topics=("news",), cls=Patient)
    await start(runtime)
    return runtime, waits


async def test_a_call_that_is_interrupted_ends_as_a_cancelled_one(waiting: Any) -> None:
    runtime, waits = waiting
    call = asyncio.create_task(runtime.send_message(Ask(), PATIENT))
    await asyncio.wait_for(waits.entered.wait(), 5)
    asked = time.monotonic()
    words = await stop(runtime)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 5)
    assert words[-1] == "stop"
    assert waits.errors == [asyncio.CancelledError]
    assert waits.cancelled_at - asked < 0.5


@pytest.mark.parametrize("how", ["publish", "tell"])
async def test_a_message_without_reply_is_gone_and_is_not_tried_again(waiting: Any, how: str) -> None:
    runtime, waits = waiting
    if how == "publish":
        await runtime.publish_message(Note(), TopicId("news", "default"))
    else:
        await runtime.schedule(Note(), PATIENT, delay=0)
    await asyncio.wait_for(waits.entered.wait(), 5)
    await stop(runtime)
    answer = await asyncio.wait_for(runtime.send_message(Ask(text="quick"), PATIENT), 5)
    assert answer.text == "quick"
    assert len(waits.errors) == 1
    await asyncio.wait_for(runtime.stop_when_idle(), 10)


@pytest.mark.needs(publishes_at_once=False)
async def test_what_the_interrupted_turn_did_is_discarded(waiting: Any) -> None:
    runtime, waits = waiting
    await runtime.publish_message(Note(), TopicId("news", "default"))
    await asyncio.wait_for(waits.entered.wait(), 5)
    words = await stop(runtime)
    assert words == ["stop"]


async def test_messages_keep_their_order(waiting: Any) -> None:
    runtime, waits = waiting
    await runtime.schedule(Note(), PATIENT, delay=0)
    await asyncio.wait_for(waits.entered.wait(), 5)
    await runtime.schedule(Note(text="quick"), PATIENT, delay=0)
    await runtime.schedule(Stop(text="1"), PATIENT, delay=0)
    await runtime.schedule(Note(text="quick"), PATIENT, delay=0)
    words = await stop(runtime, "2")
    assert [word for word in words if word != "begun"] == ["quick", "stop1", "quick", "stop2"]


async def test_other_classes_wait_their_turn(waiting: Any) -> None:
    runtime, waits = waiting
    await runtime.schedule(Note(), PATIENT, delay=0)
    await asyncio.wait_for(waits.entered.wait(), 5)
    softly = asyncio.create_task(runtime.send_message(StopSoftly(), PATIENT))
    assert not (await asyncio.wait([softly], timeout=0.3))[0]
    assert not waits.errors
    await stop(runtime)
    await asyncio.wait_for(softly, 5)


async def test_an_agent_at_rest_just_handles_it(waiting: Any) -> None:
    runtime, _ = waiting
    assert await stop(runtime) == ["stop"]
    assert await stop(runtime, "2") == ["stop", "stop2"]


async def test_what_the_turn_waits_for_is_cancelled_too(make_runtime: Any, start: Any) -> None:
    runtime, waits = make_runtime(cancel_grace=0.05), Waiting()

    async def calls(doing: Doing, message: Ask, ctx: MessageContext) -> Any:
        return await doing.call("callee")

    await host(runtime, "patient", calls, cls=Patient)
    await host(runtime, "callee", waits)
    await start(runtime)
    call = asyncio.create_task(runtime.send_message(Ask(), PATIENT))
    await asyncio.wait_for(waits.entered.wait(), 5)
    await stop(runtime)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 5)
    await eventually(lambda: waits.errors, 5)


async def test_a_turn_does_not_interrupt_itself(make_runtime: Any, start: Any) -> None:
    runtime = make_runtime()

    async def ask(doing: Any, message: Ask, ctx: MessageContext) -> Any:
        if message.text == "call":
            nested = await doing.send_message(Stop(), doing.id)
            return Answer(text=f"nested {nested.text}")
        await doing.runtime.schedule(Stop(), doing.id, delay=0)
        await asyncio.sleep(0.02)
        return Answer(text=str(ctx.cancellation_token.is_cancelled()))

    await host(runtime, "patient", ask, cls=Patient)
    await start(runtime)
    assert (await asyncio.wait_for(runtime.send_message(Ask(), PATIENT), 5)).text == "False"
    answer = await asyncio.wait_for(runtime.send_message(Ask(text="back"), agent("patient", "b")), 5)
    assert answer.text == "False"
    nested = await asyncio.wait_for(runtime.send_message(Ask(text="call"), agent("patient", "c")), 5)
    assert nested.text == "nested stop"


@pytest.mark.needs(publishes_at_once=False)
async def test_what_comes_before_the_next_attempt_ends_or_follows_that(
    make_runtime: Any, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """While the next attempt is waited for no turn is open."""
    runtime, seen = make_runtime(), list[str]()

    async def note(doing: Any, message: Note, ctx: MessageContext) -> None:
        seen.append("attempt")
        if len(seen) == 1:
            raise ValueError("once more")
        doing.words.append("done")

    await host(runtime, "patient", note=note, cls=Patient)
    await start(runtime)
    await runtime.schedule(Note(), PATIENT, delay=0)
    await eventually(lambda: "attempt 2 of 3 comes" in caplog.text, 5)
    words = await stop(runtime)
    assert words in (["done", "stop"], ["stop"])
    assert len(seen) <= 2
    assert await stop(runtime) == [*words, "stop"]


@pytest.mark.unit
@pytest.mark.parametrize("options", [{"concurrency": "interleaved"}, {"process_bound": True}])
def test_it_is_for_agents_with_one_turn_at_a_time(options: Any) -> None:
    with pytest.raises(ValueError, match="one turn at a time"):
        agent_options(interrupted_by=(Stop,), **options)
    assert options_of(Patient).interrupted_by == {Stop: None}


class Go(BaseModel):
    """What may be interrupted."""

    text: str = ""


@agent_options(interrupted_by={Go: (Stop, StopSoftly), Note: (Stop,)})
class Choosy(Patient):
    """Lets some of its turns be interrupted."""

    @message_handler
    async def on_go(self, message: Go, ctx: MessageContext) -> None:
        await self.do_note(self, message, ctx)


async def choosy(make_runtime: Any, start: Any) -> Any:
    runtime, waits = make_runtime(cancel_grace=0.05), Waiting()
    await host(runtime, "patient", waits, waits, cls=Choosy)
    await start(runtime)
    return runtime, waits


async def test_a_mapping_says_which_turns_are_interrupted_by_which_messages(make_runtime: Any, start: Any) -> None:
    runtime, waits = await choosy(make_runtime, start)
    call = asyncio.create_task(runtime.send_message(Ask(), PATIENT))
    await asyncio.wait_for(waits.entered.wait(), 5)
    stopped = asyncio.create_task(stop(runtime))
    assert not (await asyncio.wait([stopped, call], timeout=0.3))[0]  # a call with Ask is not interrupted by anything
    waits.go.set()
    assert (await asyncio.wait_for(call, 5)).text == "went on"
    await stopped
    waits.entered.clear()
    waits.go.clear()
    await runtime.schedule(Note(), PATIENT, delay=0)
    await asyncio.wait_for(waits.entered.wait(), 5)
    softly = asyncio.create_task(runtime.send_message(StopSoftly(), PATIENT))
    assert not (await asyncio.wait([softly], timeout=0.3))[0]
    await stop(runtime)
    await asyncio.wait_for(softly, 5)
    assert len(waits.errors) == 1


async def test_what_waits_before_it_is_interrupted_too(make_runtime: Any, start: Any) -> None:
    runtime, waits = await choosy(make_runtime, start)
    call = asyncio.create_task(runtime.send_message(Ask(), PATIENT))
    await asyncio.wait_for(waits.entered.wait(), 5)
    for message in (Go(text="quick"), Note(text="quick"), Go(text="quick")):
        await runtime.schedule(message, PATIENT, delay=0)
    softly = asyncio.create_task(runtime.send_message(StopSoftly(), PATIENT))
    await runtime.schedule(Go(text="quick"), PATIENT, delay=0)
    stopped = asyncio.create_task(stop(runtime, "!"))
    assert not (await asyncio.wait([call], timeout=0.3))[0]
    waits.go.set()
    await asyncio.wait_for(asyncio.gather(call, softly), 5)
    assert [word for word in await stopped if word != "begun"] == ["stop!"]
    assert not waits.errors
    await asyncio.wait_for(runtime.stop_when_idle(), 10)


async def test_a_call_that_is_named_is_interrupted_however_it_was_begun(make_runtime: Any, start: Any) -> None:
    runtime, waits = await choosy(make_runtime, start)
    for count in (1, 2):  # the first call makes the agent, the second finds it idle
        call = asyncio.create_task(runtime.send_message(Go(), PATIENT))
        await asyncio.wait_for(waits.entered.wait(), 5)
        await asyncio.wait_for(stop(runtime), 5)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 5)
        assert len(waits.errors) == count
        waits.entered.clear()
