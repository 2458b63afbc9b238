"""Answers are read while the model writes them, on every runtime, from the handle of the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from stagebell.agents.delegates import handoff
from stagebell.agents.limits import Limits
from stagebell.agents.messages import TokenChunk
from stagebell.agents.runs import RunHandle, Runs
from stagebell.messages.conversation import RunStatus
from stagebell.testing import ScriptedModel, crash
from stagebell.tools.guardrails import Allow, Guardrail, Refuse
from tests.support.loops import host_model, says, wants
from tests.support.waiting import eventually


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Slow(ScriptedModel):
    """Writes a word, and goes on when it may."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.gate = asyncio.Event()
        self.closed = asyncio.Event()

    async def create_stream(self, *args: Any, **options: Any) -> Any:
        try:
            async for chunk in super().create_stream(*args, **options):
                yield chunk
                if isinstance(chunk, str):
                    await self.gate.wait()
        finally:
            self.closed.set()


async def read(handle: RunHandle[Any]) -> list[TokenChunk]:
    """All pieces until the end of the run."""
    return [chunk async for chunk in handle.tokens()]


def text_of(chunks: list[TokenChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


async def test_the_first_piece_is_there_before_the_model_ends(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, Slow(["one two three"]))
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "count", tokens=True)
    tokens = handle.tokens()
    first = await asyncio.wait_for(anext(tokens), 10)
    assert (first.text, first.step, first.index) == ("one ", 1, 0)
    model.gate.set()
    rest = [chunk async for chunk in tokens]
    result = await handle.result()
    assert text_of([first, *rest]) == result.output == "one two three"
    assert rest[-1].last
    assert [chunk.index for chunk in [first, *rest]] == list(range(4))


async def test_every_answer_of_a_run_is_read_and_then_it_ends(runtime: Any, start: Any) -> None:
    await host_model(runtime, says(wants("add", a=1, b=1), "it is two"), tools=[add])
    await start(runtime)
    runs = Runs(runtime)
    handle = await runs.start("assistant", "1 + 1?", tokens=True)
    chunks = await asyncio.wait_for(read(handle), 10)
    assert {chunk.step for chunk in chunks if chunk.text} == {2}
    assert text_of(chunks) == "it is two"
    assert {chunk.run_id for chunk in chunks} == {handle.run_id}


async def test_runs_at_once_are_kept_apart(runtime: Any, start: Any) -> None:
    await host_model(runtime, ScriptedModel(lambda messages, tools: f"this is {messages[-1].content}"))
    await start(runtime)
    runs = Runs(runtime)
    handles = [await runs.start("assistant", str(number), tokens=True) for number in range(4)]
    texts = await asyncio.wait_for(asyncio.gather(*(read(handle) for handle in handles)), 10)
    assert [text_of(each) for each in texts] == [f"this is {number}" for number in range(4)]


async def test_a_runtime_has_one_listener_however_often_it_is_asked(runtime: Any, start: Any) -> None:
    await host_model(runtime, ScriptedModel(lambda *given: "done"))
    await start(runtime)
    for _ in range(3):
        handles = await asyncio.gather(*(Runs(runtime).start("assistant", "x", tokens=True) for _ in range(3)))
        for handle in handles:
            assert text_of(await asyncio.wait_for(read(handle), 10)) == "done"
    assert sum(name.startswith("stagebell.tokens") for name in runtime._catalog.types) == 1


async def test_who_takes_over_is_read_too(runtime: Any, start: Any) -> None:
    await host_model(runtime, says("your money is back"), type="billing")
    await host_model(runtime, says(wants("transfer_to_billing", message="a refund")), tools=[handoff("billing")])
    await start(runtime)
    handle = await Runs(runtime).start("assistant", "refund", tokens=True)
    chunks = await asyncio.wait_for(read(handle), 10)
    assert text_of(chunks) == (await handle.result()).output == "your money is back"


async def test_reading_ends_with_a_run_that_fails_or_is_cancelled(runtime: Any, start: Any) -> None:
    model = Slow(["and so on and on"])
    await host_model(runtime, model)
    await host_model(runtime, says("?"), type="typed", output_type=int, limits=Limits(output_retries=0))
    await start(runtime)
    runs = Runs(runtime)
    failing = await runs.start("typed", "count", tokens=True)
    assert text_of(await asyncio.wait_for(read(failing), 10)) == "?"
    handle = await runs.start("assistant", "go", tokens=True)
    reading = asyncio.create_task(read(handle))
    await eventually(lambda: bool(model.requests), 10)
    assert await handle.cancel() is RunStatus.CANCELLED
    assert text_of(await asyncio.wait_for(reading, 10)) in ("", "and ")
    await asyncio.wait_for(model.closed.wait(), 5)


async def test_a_reader_that_goes_away_is_no_trouble(runtime: Any, start: Any) -> None:
    """Nor is one that never reads: the run does not wait for it."""
    await host_model(runtime, ScriptedModel(lambda *given: "one two three four"))
    await start(runtime)
    runs = Runs(runtime)
    left, unread = [await runs.start("assistant", "x", tokens=True) for _ in range(2)]
    async for chunk in left.tokens():
        assert chunk.text == "one "
        break
    assert (await asyncio.wait_for(left.result(), 10)).output == "one two three four"
    assert (await asyncio.wait_for(unread.result(), 10)).output == "one two three four"
    assert text_of(await asyncio.wait_for(read(unread), 10)) == "one two three four"


async def test_reading_ends_with_a_run_that_never_began(runtime: Any, start: Any) -> None:
    """It was refused, or cancelled while it waited in line."""
    refuses = Guardrail(lambda subject: Refuse("no") if subject.value == "bad" else Allow(), at="input")
    await host_model(runtime, says("one two"), guardrails=[refuses])
    await start(runtime)
    runs = Runs(runtime)
    assert await asyncio.wait_for(read(await runs.start("assistant", "bad", tokens=True)), 10) == []
    first = await runs.start("assistant", "go", conversation="c", paused=True, tokens=True)
    second = await runs.start("assistant", "go", conversation="c", tokens=True)
    assert await second.cancel() is RunStatus.CANCELLED
    assert await asyncio.wait_for(read(second), 10) == []
    await first.resume()
    assert text_of(await asyncio.wait_for(read(first), 10)) == "one two"


async def test_who_did_not_ask_for_them_is_told_how(runtime: Any, start: Any) -> None:
    model = await host_model(runtime, says("done"))
    await start(runtime)
    runs = Runs(runtime)
    handle = await runs.start("assistant", "x")
    for each in (handle, runs.get(handle.run_id)):
        with pytest.raises(ValueError, match="tokens=True"):
            await anext(each.tokens())
    assert (await handle.result()).output == "done"
    assert model.requests


@pytest.mark.needs(any_object=False)
async def test_a_reader_whose_process_is_gone_holds_nobody_up(make_runtime: Any, start: Any) -> None:
    model = Slow([" ".join(["word"] * 20)])
    worker, asking = make_runtime(), make_runtime()
    await host_model(worker, model)
    await start(worker)
    await start(asking)
    handle = await Runs(asking).start("assistant", "write", tokens=True)
    assert (await asyncio.wait_for(anext(handle.tokens()), 10)).text == "word "
    await asking.close()
    model.gate.set()
    result = await asyncio.wait_for(Runs(worker).get(handle.run_id).result(), 10)
    assert result.status is RunStatus.SUCCEEDED


@pytest.mark.needs(any_object=False)
async def test_a_worker_that_dies_begins_its_answer_anew(make_runtime: Any, start: Any) -> None:
    models = [Slow(["one two three"]) for _ in range(2)]
    first, second, asking = (make_runtime(server_lease=0.6) for _ in range(3))
    await host_model(first, models[0])
    await start(first)
    await start(asking)
    handle = await Runs(asking).start("assistant", "count", tokens=True)
    tokens = handle.tokens()
    before = await asyncio.wait_for(anext(tokens), 10)
    await crash(first)
    models[1].gate.set()
    await host_model(second, models[1])
    await start(second)
    after = [chunk async for chunk in tokens]
    assert (before.text, before.index, after[0].index) == ("one ", 0, 0)
    assert text_of(after) == (await handle.result()).output == "one two three"


@pytest.mark.needs(any_object=False)
async def test_who_hosts_nothing_cannot_listen(runtime: Any, start: Any) -> None:
    """And is told so before anything was started."""
    model = await host_model(runtime, says("done"))
    await start(runtime)
    async with Publisher(runtime._url, namespace=runtime._namespace) as publisher:
        with pytest.raises(ValueError, match="a Publisher hosts no agent"):
            await Runs(publisher).start("assistant", "x", conversation="c", tokens=True)
    assert (await runtime.agent_save_state(AgentId("assistant", "c"))).get("conversation", []) == []
    assert not model.requests
