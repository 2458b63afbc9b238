"""A worker dies around a call of a tool, at each place in turn: what its successor makes of what was noted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from autogen_core import MessageContext

from stagebell import LocalRuntime, Publisher, RedisRuntime
from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.testing import crash
from stagebell.tools.declared import StatusKind, Strategy
from stagebell.tools.ledger import Earlier, Next, TurnLedger, decide
from tests.support.agents import Answer, Ask, Doing, agent, host
from tests.support.servers import Server
from tests.support.waiting import eventually

LEASE = 0.6
KEY = "run:1"
CALL = ToolCall(id="1", name="charge")
PLACES = ["before intent", "after intent", "before effect", "after effect", "after result"]

Reach = Callable[[str], Awaitable[None]]


class Shop:
    """What is outside: charges, known by their keys; `bodies` counts how often the tool ran."""

    def __init__(self) -> None:
        self.bodies = 0
        self.charges: list[str] = []

    async def charge(self, strategy: Strategy, reach: Reach) -> ToolResult:
        """The tool."""
        self.bodies += 1
        await reach("before effect")
        if strategy is not Strategy.IDEMPOTENT or KEY not in self.charges:
            self.charges.append(KEY)
        await reach("after effect")
        return _charged()

    def status(self) -> StatusKind:
        """What the service says of the call."""
        return "succeeded" if KEY in self.charges else "absent"


def _charged() -> ToolResult:
    return ToolResult(call_id="1", tool_name="charge", value="charged")


async def call(shop: Shop, strategy: Strategy, reach: Reach) -> ToolResult:
    """The part of a call's life that the ledger is about."""
    ledger = TurnLedger()
    await reach("before intent")
    earlier = await ledger.open(KEY)
    await reach("after intent")
    step = decide(strategy, attempts=earlier.attempts, result=earlier.result is not None)
    if step is Next.ASK:
        step = decide(strategy, attempts=earlier.attempts, result=False, status=shop.status())
    match step:
        case Next.ANSWER:
            assert earlier.result is not None
            return earlier.result
        case Next.RUN:
            result = await shop.charge(strategy, reach)
        case Next.SUCCEEDED:
            result = _charged()
        case _:
            result = ToolResult.error(CALL, ErrorCode.OUTCOME_UNKNOWN, "it may have run")
    result = await ledger.close(KEY, result)
    await reach("after result")
    return result


async def worker(server: Server, namespace: str, shop: Shop, strategy: Strategy, deaths: list[str]) -> RedisRuntime:
    """A worker that dies at the first of these places, if any is left."""

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        async def reach(place: str) -> None:
            if deaths and place == deaths[0]:
                deaths.pop(0)
                await crash(runtime)

        return Answer(text=(await call(shop, strategy, reach)).text)

    runtime = RedisRuntime(server.url, namespace=namespace, lease=LEASE, partitions=1)
    await host(runtime, "till", ask)
    await runtime.start()
    return runtime


@pytest.mark.integration
@pytest.mark.parametrize("strategy", [Strategy.IDEMPOTENT, Strategy.STATUS, Strategy.UNDECLARED], ids=str)
async def test_a_worker_dies_around_a_call(server: Server, namespace: str, strategy: Strategy) -> None:
    places = [(place, f"{namespace}-{number}") for number, place in enumerate(PLACES)]
    await asyncio.gather(*(_dies_at(place, own, server, strategy) for place, own in places))


async def _dies_at(place: str, namespace: str, server: Server, strategy: Strategy) -> None:
    shop, deaths = Shop(), [place]
    victim = await worker(server, namespace, shop, strategy, deaths)
    async with Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(Answer)
        asking = publisher.call(Ask(), agent("till"), timeout=30)
        answer, heir = await _with_heir(asking, server, namespace, shop, strategy, deaths)
    if strategy is Strategy.UNDECLARED and place in ("after intent", "before effect", "after effect"):
        assert answer.text == "it may have run"
        assert shop.bodies == int(place != "after intent")
    else:
        assert (answer.text, shop.charges) == ("charged", [KEY])
    await heir.stop_when_idle(10)
    client: Any = server.client()
    assert not list(client.scan_iter(f"sb:{{{namespace}:*}}:j:*"))
    client.close()
    await heir.close()
    await victim.close()


async def _with_heir(
    asking: Awaitable[Any], server: Server, namespace: str, shop: Shop, strategy: Strategy, deaths: list[str]
) -> tuple[Any, RedisRuntime]:
    """Let another worker take over as soon as the first has died."""
    call = asyncio.ensure_future(asking)
    await eventually(lambda: not deaths, 10)
    heir = await worker(server, namespace, shop, strategy, [])
    return await call, heir


@pytest.mark.runtime
async def test_in_memory_it_is_as_good_as_the_process() -> None:
    found: list[Any] = []

    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> None:
        ledger = TurnLedger()
        found.append(await ledger.open(KEY))
        found.append(await ledger.open(KEY))
        found.append(await ledger.close(KEY, _charged()))
        found.append(await ledger.close(KEY, ToolResult.error(CALL, ErrorCode.FATAL, "late")))
        found.append(await ledger.open(KEY))

    async with LocalRuntime() as runtime:
        await host(runtime, "till", ask)
        for _ in range(2):
            await runtime.send_message(Ask(), agent("till"))
    one = [Earlier(), Earlier(1), _charged(), _charged(), Earlier(1, _charged())]
    assert found == one * 2


@pytest.mark.integration
async def test_a_result_that_is_too_large_gives_way_to_an_error(redis_url: str, namespace: str) -> None:
    async def ask(doing: Doing, message: Ask, ctx: MessageContext) -> Answer:
        ledger = TurnLedger()
        await ledger.open(KEY)
        result = await ledger.close(KEY, _charged().model_copy(update={"value": "x" * 5000}))
        assert result == (await ledger.open(KEY)).result
        assert result.code is ErrorCode.BUSINESS
        return Answer(text=result.text)

    runtime = RedisRuntime(redis_url, namespace=namespace, max_message_bytes=2000)
    await host(runtime, "till", ask)
    await runtime.start()
    assert "the tool ran, and its result has 5,1" in (await runtime.send_message(Ask(), agent("till"))).text
    await runtime.close()
