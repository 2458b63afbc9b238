"""The floor in one process: one `asyncio.Queue` and one loop per actor, nothing else.

It keeps what an actor cannot do without (a mailbox, serial turns, a reply) and none of what a runtime
adds (addresses, subscriptions, dispatch by type, cancellation, errors).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from benchmarks.scenarios.agents import RECEIPT
from benchmarks.scenarios.messages import Order, Receipt, Tick

Reply = asyncio.Future[Receipt | None]
Handler = Callable[[Order | Tick], Awaitable[Receipt | None]]


async def handle(message: Order | Tick) -> Receipt | None:
    """The same work as the benchmark agents do."""
    return RECEIPT if isinstance(message, Order) else None


class QueueActor:
    """A mailbox and the task that empties it."""

    def __init__(self, handler: Handler) -> None:
        self._mailbox: asyncio.Queue[tuple[Order | Tick, Reply | None]] = asyncio.Queue()
        self._handler = handler
        self._task = asyncio.create_task(self._loop())

    async def _loop(self) -> None:
        while True:
            message, reply = await self._mailbox.get()
            result = await self._handler(message)
            if reply is not None:
                reply.set_result(result)
            self._mailbox.task_done()

    def call(self, message: Order) -> Reply:
        reply: Reply = asyncio.get_running_loop().create_future()
        self._mailbox.put_nowait((message, reply))
        return reply

    def tell(self, message: Tick) -> None:
        self._mailbox.put_nowait((message, None))

    async def idle(self) -> None:
        await self._mailbox.join()

    def close(self) -> None:
        self._task.cancel()


async def calls(count: int) -> float:
    """Seconds for one call and its reply, one at a time."""
    actor = QueueActor(handle)
    message = Order(number=1)
    await actor.call(message)
    start = perf_counter()
    for _ in range(count):
        await actor.call(message)
    elapsed = perf_counter() - start
    actor.close()
    return elapsed / count


async def calls_in_flight(count: int, width: int) -> float:
    """Seconds for one call with `width` calls to as many actors in flight."""
    actors = [QueueActor(handle) for _ in range(width)]
    message = Order(number=1)
    await asyncio.gather(*(actor.call(message) for actor in actors))
    start = perf_counter()
    for _ in range(count // width):
        await asyncio.gather(*(actor.call(message) for actor in actors))
    elapsed = perf_counter() - start
    for actor in actors:
        actor.close()
    return elapsed / (count // width * width)


async def publish(count: int, subscribers: int) -> float:
    """Seconds for one delivery of messages that go to `subscribers` actors each."""
    actors = [QueueActor(handle) for _ in range(subscribers)]
    message = Tick(number=1)
    start = perf_counter()
    for _ in range(count // subscribers):
        for actor in actors:
            actor.tell(message)
    for actor in actors:
        await actor.idle()
    elapsed = perf_counter() - start
    for actor in actors:
        actor.close()
    return elapsed / (count // subscribers * subscribers)
