"""Memory of an idle agent: a fresh process makes many by one message each and looks at what it grew by.

Run as `python -m benchmarks.memory RUNTIME AGENTS`; prints the bytes per agent.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler

from benchmarks.in_process import RUNTIMES, InProcessRuntime
from benchmarks.scenarios.agents import RECEIPT
from benchmarks.scenarios.messages import Order, Receipt

STATM = Path("/proc/self/statm")


class IdleAgent(RoutedAgent):
    """As little of its own as an agent can have, so that the rest is the runtime's."""

    @message_handler
    async def on_order(self, message: Order, ctx: MessageContext) -> Receipt:
        return RECEIPT


def measure(runtime_name: str, agents: int) -> float:
    """Bytes per idle agent of one runtime, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", runtime_name, str(agents)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)


async def bytes_per_agent(runtime_name: str, agents: int) -> float:
    """Bytes by which the process grew per agent, once each of `agents` has answered a call."""
    runtime = RUNTIMES[runtime_name]()
    await IdleAgent.register(runtime, "idle", lambda: IdleAgent("idle"))
    runtime.start()
    await _call_each(runtime, range(1_000))
    before = _memory()
    await _call_each(runtime, range(1_000, 1_000 + agents))
    after = _memory()
    await runtime.stop_when_idle()
    return (after - before) / agents


async def _call_each(runtime: InProcessRuntime, keys: Iterable[int]) -> None:
    message = Order(number=1)
    for key in keys:
        await runtime.send_message(message, AgentId("idle", str(key)))


def _memory() -> int:
    """Resident bytes; where the system does not tell them, the bytes of Python's own objects."""
    gc.collect()
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    print(asyncio.run(bytes_per_agent(sys.argv[1], int(sys.argv[2]))))
