"""Publish and subscribe, with two topologies made of the same agent class.

Fan-out: several agent types subscribe to one topic type; each of them gets every message.
Tenants: one agent type subscribes; the topic's source chooses the agent, so each city has one of its own.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from autogen_core import MessageContext, RoutedAgent, TopicId, TypeSubscription, event

from stagebell import LocalRuntime


@dataclass
class Order:
    dish: str


class Desk(RoutedAgent):
    def __init__(self, seen: dict[str, list[str]]) -> None:
        super().__init__("Notes the orders that reach it.")
        self.seen = seen

    @event
    async def on_order(self, message: Order, ctx: MessageContext) -> None:
        self.seen[str(self.id)].append(message.dish)


async def main() -> None:
    seen: dict[str, list[str]] = defaultdict(list)
    async with LocalRuntime() as runtime:
        for agent_type in ("kitchen", "bar", "branch"):
            await Desk.register(runtime, agent_type, lambda: Desk(seen))

        # fan-out: kitchen and bar both see what is ordered in the house
        await runtime.add_subscription(TypeSubscription("house", "kitchen"))
        await runtime.add_subscription(TypeSubscription("house", "bar"))
        # tenants: there is a branch for every city, and none has to be created
        await runtime.add_subscription(TypeSubscription("delivery", "branch"))

        await runtime.publish_message(Order("soup"), TopicId("house", "table-1"))
        await runtime.publish_message(Order("fish"), TopicId("delivery", "lisbon"))
        await runtime.publish_message(Order("rice"), TopicId("delivery", "oslo"))
        await runtime.publish_message(Order("tea"), TopicId("delivery", "oslo"))
        await runtime.stop_when_idle()
    for agent, dishes in sorted(seen.items()):
        print(f"{agent}: {', '.join(dishes)}")


if __name__ == "__main__":
    asyncio.run(main())
