"""The client of a schedule, and the other systems: what they send, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from autogen_core import AgentId, TopicId, TypeSubscription

from stagebell import Publisher, RedisRuntime, deadline
from stagebell.errors import (
    DeadlineExceeded,
    OutcomeUnknown,
    RuntimeNotRunning,
    ServerUnavailable,
    StateMismatch,
    SubscriptionError,
    Undeliverable,
)
from tests.simulation.agents import DESK, NEWS, REFUSED, Poison, Work, names_both_versions
from tests.simulation.programs import Root
from tests.simulation.workers import NAMESPACE, URL

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule


class Client:
    """`replies`: how its calls ended, by label; `events`: those that reached the server."""

    def __init__(self, world: Schedule) -> None:
        self.replies: dict[str, Any] = {}
        self.events: list[Root] = []
        self.unsure: set[str] = set()
        """Labels of messages that perhaps came, with all that follows from them."""
        self.never: set[str] = set()
        """Labels of messages that must not have come."""
        self.subscribed = False
        self._tasks: list[asyncio.Task[None]] = []
        self.publisher: Publisher | None = None
        self._world = world

    async def open(self) -> None:
        """Connect."""
        publisher = Publisher(URL, namespace=NAMESPACE, inbox_limit=self._world.plan.room)
        await publisher.open()
        publisher.register(str)
        self.publisher = publisher

    async def work(self) -> None:
        """Send everything."""
        half = len(self._world.plan.roots) // 2
        for number, root in enumerate(self._world.plan.roots):
            while self._world.plan.news and number == half and not self.subscribed:
                self._ask_to_subscribe()
                await asyncio.sleep(0.2)
            await asyncio.sleep(self._world.chance.choice([0.0, 0.001, 0.05, 0.5]))
            self._send(root)
            if root.how == "publish" and self._world.chance.random() < 0.2:
                self._world.faults.counts["duplicate"] += 1
                self._send(root)

    def _ask_to_subscribe(self) -> None:
        """Let the readers hear the news, by way of some worker; no process awaits what another does."""
        for process, runtime in self._world.workers.items():
            if runtime is not None:
                self._world.loop.spawn(process, self._subscribe(runtime))
                return

    async def _subscribe(self, runtime: RedisRuntime) -> None:
        with suppress(SubscriptionError, RuntimeNotRunning, ServerUnavailable):  # asked before; it stops
            await runtime.add_subscription(TypeSubscription(NEWS, "reader"))
            self.subscribed = True

    def _send(self, root: Root) -> None:
        if root.how == "timer":
            self._tasks.append(asyncio.get_running_loop().create_task(self._set_timer(root)))
        elif root.how == "event":
            self.events.append(root)
            self.event(root)
        else:
            self._tasks.append(asyncio.get_running_loop().create_task(self._send_message(root)))

    @property
    def waits(self) -> bool:
        """True while something that it has sent is not accepted, or not answered."""
        return not all(task.done() for task in self._tasks)

    async def _set_timer(self, root: Root) -> None:
        """Set it, and perhaps cancel it; what is not certain afterwards is noted."""
        assert self.publisher is not None
        chance, work = self._world.chance, Work(label=root.label, program=root.program)
        id = AgentId.from_str(root.agent)
        to = chance.choice([id, id, TopicId(id.type, id.key)])
        self.unsure.add(root.label)
        try:
            timer = await self.publisher.schedule(work, to, delay=chance.choice([0.0, 0.01, 0.3, 1.0]), name=root.label)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.choice([0.0, 0.2, 0.9]))
                if not await self.publisher.cancel_timer(timer.id):
                    return  # it has come, or the answer to a first try was lost
                self.never.add(root.label)
        except (OutcomeUnknown, ServerUnavailable) as error:
            self._world.note(f"timer {root.label}: {error!r}")
        else:
            self.unsure.remove(root.label)
        finally:
            self.replies[root.label] = "timer"

    def event(self, root: Root) -> None:
        """From another system: one XADD, which reaches the server."""
        type, _, key = root.agent.partition("/")
        data = Work(label=root.label, program=root.program).model_dump_json()
        words = ("XADD", f"sb:{{{NAMESPACE}}}:events", "*", "type", "Work", "topic", f"{type}/{key}", "data", data)
        self._world.network.execute([word.encode() for word in words])

    async def _send_message(self, root: Root) -> None:
        assert self.publisher is not None
        type, _, key = root.agent.partition("/")
        work = Work(label=root.label, program=root.program)
        try:
            if root.how == "publish":
                await self.publisher.publish(work, TopicId(type, key), message_id=root.label)
            elif root.how in ("cancel", "deadline"):
                self.unsure.add(root.label)
                await self._call_briefly(root, work)
                self.replies[root.label] = "ended"
            else:
                self.replies[root.label] = await self.publisher.call(work, AgentId(type, key), message_id=root.label)
        except Poison as error:
            self.replies[root.label] = f"raised:{error}"
        except StateMismatch as error:
            self.replies[root.label] = "refused" if names_both_versions(error) else ("failed", repr(error))
            REFUSED.add(root.label)
        except (Undeliverable, RuntimeNotRunning) as error:
            self.replies[root.label] = "gone" if root.agent == DESK else ("failed", repr(error))
        except OutcomeUnknown as error:
            self.replies[root.label] = "unknown", str(error)
            if self._world.upgrade.begins:
                REFUSED.add(root.label)  # perhaps
        except Exception as error:
            self.replies[root.label] = "failed", repr(error)

    async def _call_briefly(self, root: Root, work: Work) -> None:
        assert self.publisher is not None
        seconds = self._world.chance.choice([0.0, 0.003, 0.05, 0.3, 1.0])
        call = self.publisher.call(work, AgentId.from_str(root.agent), message_id=root.label)
        with suppress(TimeoutError, DeadlineExceeded):
            if root.how == "cancel":
                async with asyncio.timeout(seconds):
                    await call
            else:
                with deadline(seconds):
                    await call

    async def send_again(self) -> None:
        """Another client repeats everything, since the server may have lost it; what arrived is known there.

        Calls as calls, since a message that nobody waits for is tried again when its handler raises. How they end is of
        no interest: one that was answered before has no further answer.
        """
        async with Publisher(URL, namespace=NAMESPACE) as publisher:
            publisher.register(str)
            calls: list[asyncio.Task[Any]] = []
            for root in self._world.plan.roots:
                type, _, key = root.agent.partition("/")
                work = Work(label=root.label, program=root.program)
                if root.how == "publish":
                    await publisher.publish(work, TopicId(type, key), message_id=root.label)
                elif root.how == "call":
                    call = publisher.call(work, AgentId(type, key), message_id=root.label)
                    calls.append(asyncio.get_running_loop().create_task(_ended(call)))
                    await asyncio.sleep(0)  # it is on its way now, before what comes next
            if calls:
                await asyncio.wait(calls, timeout=5.0)


async def _ended(call: Coroutine[Any, Any, Any]) -> None:
    with suppress(Exception):
        await call
