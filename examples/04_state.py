"""State moves between runtimes: counted in one process's memory, saved, loaded on a server, counted on."""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autogen_core import AgentId, AgentRuntime, MessageContext, RoutedAgent, rpc

from stagebell import LocalRuntime, RedisRuntime

COUNTER = AgentId("counter", "visitors")


@dataclass
class Visit:
    visitors: int


class Counter(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("Counts visitors.")
        self.count = 0

    @rpc
    async def on_visit(self, message: Visit, ctx: MessageContext) -> int:
        self.count += message.visitors
        return self.count

    async def save_state(self) -> Mapping[str, Any]:
        return {"count": self.count}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


async def visit(runtime: AgentRuntime, visitors: int) -> None:
    count = await runtime.send_message(Visit(visitors), COUNTER)
    print(f"{type(runtime).__name__}: {visitors} came, {count} so far")


async def main() -> None:
    async with LocalRuntime() as local:
        await Counter.register(local, "counter", Counter)
        await visit(local, 40)
        state = await local.save_state()
    async with RedisRuntime(namespace="museum") as distributed:
        await Counter.register(distributed, "counter", Counter)
        await distributed.load_state(state)
        await visit(distributed, 2)


if __name__ == "__main__":
    # Without a URL a server of our own starts; it keeps its data in this folder, and ends with us.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STAGEBELL_FOLDER"] = folder
        asyncio.run(main())
