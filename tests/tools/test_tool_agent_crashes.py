"""The worker of a tool agent dies at each await around a charge, and what is allowed has changed when it runs again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from autogen_core import AgentId, FunctionCall
from autogen_core.models import FunctionExecutionResult

from stagebell import Publisher, RedisRuntime
from stagebell.messages.tool_calls import ToolResult
from stagebell.testing import crash
from stagebell.tools.agent import ToolAgent
from stagebell.tools.context import ToolContext
from stagebell.tools.ledger import Earlier, TurnLedger
from stagebell.tools.tool import ToolOptions, tool
from tests.support.servers import Server, available_kinds
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LEASE = 0.6
PLACES = [
    "before intent",
    "after intent",
    "before request",
    "after effect",
    "before record",
    "after record",
]


@dataclass
class Payments:
    """A payment service that charges a key once, whoever asks; and where a worker dies."""

    deaths: list[str]
    charges: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    victim: RedisRuntime | None = None

    async def reach(self, place: str) -> None:
        if self.deaths and self.deaths[0] == place:
            self.deaths.pop()
            assert self.victim is not None
            await crash(self.victim)

    async def charge(self, key: str, cents: int) -> str:
        await self.reach("before request")
        self.requests += 1
        self.charges.setdefault(key, cents)
        await self.reach("after effect")
        return f"charged {cents}"


class Watched(TurnLedger):
    """The ledger of a turn, whose worker may die around each note."""

    def __init__(self, payments: Payments) -> None:
        self.payments = payments

    async def open(self, key: str) -> Earlier:
        await self.payments.reach("before intent")
        earlier = await super().open(key)
        await self.payments.reach("after intent")
        return earlier

    async def close(self, key: str, result: ToolResult) -> ToolResult:
        await self.payments.reach("before record")
        result = await super().close(key, result)
        await self.payments.reach("after record")
        return result


def unpaid(arguments: Mapping[str, Any], context: ToolContext[Payments]) -> bool:
    return context.idempotency_key not in context.deps.charges


async def charge(context: ToolContext[Payments], cents: int) -> str:
    return await context.deps.charge(context.idempotency_key, cents)


STRATEGIES: dict[str, ToolOptions] = {
    "idempotent": {"effects": "idempotent", "authorise": unpaid},
    "once": {"effects": "side", "compensate": lambda *given: None},
}


async def worker(server: Server, namespace: str, payments: Payments, options: ToolOptions) -> RedisRuntime:
    def make() -> ToolAgent[Payments]:
        agent = ToolAgent("Payments.", [tool(charge, **options)], deps=payments, errors="return")
        agent._executor._ledger = Watched(payments)
        return agent

    runtime = RedisRuntime(server.url, namespace=namespace, lease=LEASE, partitions=1)
    await ToolAgent.register(runtime, "tools", make)
    await runtime.start()
    return runtime


async def charged(server: Server, namespace: str, options: ToolOptions, place: str) -> tuple[Payments, Any]:
    """What a caller gets whose call is begun by a worker that dies there, and what the service did."""
    payments = Payments([place])
    payments.victim = await worker(server, namespace, payments, options)
    call = FunctionCall(id="1", name="charge", arguments='{"cents": 5}')
    async with Publisher(server.url, namespace=namespace) as publisher:
        publisher.register(FunctionExecutionResult)
        asking = asyncio.ensure_future(publisher.call(call, AgentId("tools", "one"), timeout=30))
        await eventually(lambda: not payments.deaths, 10)
        heir = await worker(server, namespace, payments, options)
        answer = await asking
    await heir.close()
    await payments.victim.close()
    return payments, answer


@pytest.mark.parametrize("server", available_kinds()[:1], indirect=True)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_there_is_one_charge_wherever_the_worker_dies(server: Server, namespace: str, strategy: str) -> None:
    names = {place: f"{namespace}-{at}" for at, place in enumerate(PLACES)}
    found = await asyncio.gather(*(charged(server, name, STRATEGIES[strategy], place) for place, name in names.items()))
    for place, (payments, answer) in zip(PLACES, found, strict=True):
        if strategy == "once" and place in PLACES[1:5]:
            assert answer.is_error, place
            assert "may have had its effect" in answer.content
            assert len(payments.charges) == payments.requests == int(place in PLACES[3:5])
        else:
            assert (answer.content, answer.is_error) == ("charged 5", False), place
            assert list(payments.charges.values()) == [5], place
