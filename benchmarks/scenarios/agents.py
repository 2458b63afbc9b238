"""The agents of the benchmarks. Each contender hosts these very classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from autogen_core import (
    AgentRuntime,
    MessageContext,
    RoutedAgent,
    TypeSubscription,
    message_handler,
    try_get_known_serializers_for_type,
)

from benchmarks.scenarios.messages import Order, Receipt, Tick

STATE_BYTES = 200
RECEIPT = Receipt(number=1)
"""Every answer: making one is the work of an agent, and only the runtime is measured here."""


class Deliveries:
    """Counts the events that one process received and tells when the awaited number is reached."""

    def __init__(self, when_complete: Callable[[float], None] = lambda _: None) -> None:
        self._missing = 0
        self._when_complete = when_complete

    def expect(self, count: int) -> None:
        """Start counting down from `count`."""
        self._missing = count

    def one(self) -> None:
        """Count one event; at the last one hand its time (`perf_counter`, seconds) over."""
        self._missing -= 1
        if self._missing == 0:
            self._when_complete(perf_counter())


class BenchAgent(RoutedAgent):
    """Answers orders and counts events; keeps nothing that outlives its process."""

    def __init__(self, deliveries: Deliveries) -> None:
        super().__init__("benchmark agent")
        self._deliveries = deliveries
        self._turns = 0

    @message_handler
    async def on_order(self, message: Order, ctx: MessageContext) -> Receipt:
        self._turns += 1
        return RECEIPT

    @message_handler
    async def on_tick(self, message: Tick, ctx: MessageContext) -> None:
        self._turns += 1
        self._deliveries.one()


class StatefulBenchAgent(BenchAgent):
    """The same with a state of about 200 bytes that changes with every turn."""

    async def save_state(self) -> Mapping[str, Any]:
        return {"turns": self._turns, "padding": "x" * (STATE_BYTES - 30)}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self._turns = state["turns"]


def type_name(number: int) -> str:
    """The name of the `number`-th agent type, and of the topic type that it listens to."""
    return f"bench{number}"


def know_messages(runtime: AgentRuntime) -> None:
    """Tell a runtime the message types; AutoGen's gRPC runtime does not learn return types by itself."""
    for message_type in (Order, Receipt, Tick):
        runtime.add_message_serializer(try_get_known_serializers_for_type(message_type))


async def register(
    runtime: AgentRuntime,
    deliveries: Deliveries,
    *,
    types: int,
    stateful: bool = False,
    topic: str | None = None,
) -> None:
    """Register `types` agent types; each listens to `topic`, or to a topic type of its own name."""
    agent_class = StatefulBenchAgent if stateful else BenchAgent
    know_messages(runtime)
    for number in range(types):
        name = type_name(number)
        await agent_class.register(runtime, name, lambda: agent_class(deliveries))
        await runtime.add_subscription(TypeSubscription(topic or name, name))
