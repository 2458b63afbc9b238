"""One schedule: a seed decides the programs, the network, and when a worker dies, sleeps, stops, or writes are lost.

First everything goes wrong; then nothing more does, the client repeats what it has sent, and all must come to rest.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from unittest import mock

from autogen_core import AgentId, TopicId, TypeSubscription

from stagebell import Publisher, RedisRuntime
from stagebell.errors import OutcomeUnknown, RuntimeNotRunning, ServerUnavailable, SubscriptionError
from stagebell.messages import ids
from tests.simulation import checker
from tests.simulation.agents import NEWS, STUMBLES, Poison, Work
from tests.simulation.expected import expect
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Command, Line, Network, Weather
from tests.simulation.programs import Root, make_roots
from tests.simulation.store import Store
from tests.simulation.workers import NAMESPACE, URL, make_worker

TURN_SCRIPTS = frozenset({"send", "begin", "call", "commit", "fail", "fanout", "retry", "acquire", "release"})
MOST_RESTARTS = 3
"""So many times a turn may be started in vain before it counts as the one that kills its workers."""


@dataclass
class Outcome:
    """What became of a schedule."""

    seed: int
    problems: list[str]
    faults: Counter[str]
    history: list[str]
    digest: str
    commands: int
    virtual_seconds: float


@dataclass
class Plan:
    """What a seed decides at first."""

    partitions: int
    lease: float
    workers: int
    rates: dict[str, float]
    weather: Weather
    rollback: bool
    news: bool
    roots: list[Root] = field(default_factory=list[Root])


def make_plan(chance: random.Random) -> Plan:
    """Draw a plan."""
    pick = chance.choice
    rollback = chance.random() < 0.3
    plan = Plan(
        partitions=pick([1, 2, 2, 3]),
        lease=pick([0.6, 1.0, 1.0]),
        workers=pick([2, 2, 3]),
        rates={
            "crash": pick([0.0, 0.01, 0.03]),
            "pause": pick([0.0, 0.01, 0.03]),
            "starve": pick([0.0, 0.0, 0.02]),
            "drain": pick([0.0, 0.0, 0.015]),
            "break": pick([0.0, 0.02, 0.05]),
        },
        weather=Weather(
            delay=pick([0.0005, 0.002, 0.02]),
            stall=pick([0.0, 0.01, 0.03]),
            stalled_for=pick([0.1, 1.0, 3.0]),
            lost_reply=pick([0.0, 0.0, 0.01, 0.04]),
            lost_command=pick([0.0, 0.0, 0.01]),
        ),
        rollback=rollback,
        news=not rollback and chance.random() < 0.5,
    )
    plan.roots = make_roots(chance, news=plan.news)
    return plan


class Schedule:
    """One run of one seed on an empty server."""

    def __init__(self, store: Store, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.plan = make_plan(self.chance)
        self.loop = SimulatedLoop(self.chance)
        self.loop.set_exception_handler(self._failed)
        self.store = store
        self.network = Network(self.loop, store, self._watch)
        self.workers: dict[Process, RedisRuntime | None] = {}
        self.client = self.loop.start("client")
        self.publisher: Publisher | None = None
        self.replies: dict[str, Any] = {}
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self.history: list[str] = []
        self.digest = blake2b(digest_size=16)
        self.raging = False
        self.restarts = 0
        self.subscribed = False
        self.events: list[Root] = []
        self._snapshot: tuple[list[tuple[bytes, bytes]], int] | None = None
        self._numbers = 0

    # -- what happened

    def note(self, text: str) -> None:
        """One line of history."""
        self.history.append(f"{self.loop.now - 1000:.4f} {text}")

    def _failed(self, loop: Any, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), ServerUnavailable):
            return  # told to nobody, since whoever asked has been stopped
        self.problems.append(
            f"in {self.loop.current}: {context.get('message')} {context.get('exception')!r} {context.get('future')!r}"
        )

    def _watch(self, line: Line, name: str, command: Command, answer: Any) -> None:
        """The server has executed a command; perhaps something happens at this very moment."""
        if name != "HGETALL" or b":worker:" not in command[1]:  # that one names this process and this machine
            told = f"{self.loop.now:.6f} {line.number} {name} {b' '.join(command[2:])!r} {answer!r}"
            self.digest.update(told.encode())
        if name in TURN_SCRIPTS:
            self.note(f"{line.process} {tell(name, command, answer)}")
            if self.raging:
                self._perhaps(line)

    # -- faults

    def _perhaps(self, line: Line) -> None:
        chance = self.chance
        for fault, rate in self.plan.rates.items():
            if rate and chance.random() < rate:
                victim = line.process if chance.random() < 0.6 else chance.choice(self.loop.processes)
                getattr(self, f"_{fault}")(victim)
                break

    def _count(self, fault: str, victim: object = "") -> None:
        self.faults[fault] += 1
        self.note(f"==== {fault} {victim}")

    def _crash(self, victim: Process) -> None:
        if victim in self.workers and self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("crash", victim)
            self._bury(victim)
            self.loop.later(self.chance.random() * 2, None, self.start_worker)

    def _bury(self, victim: Process) -> None:
        self.loop.kill(victim)
        self.network.bury(victim)
        del self.workers[victim]

    def _pause(self, victim: Process) -> None:
        if self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("pause", victim)
            victim.asleep_until = self.loop.now + self.chance.choice([0.3, 1.5, 4.0])

    def _starve(self, victim: Process) -> None:
        if victim in self.workers and self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("starve", victim)
            victim.starved_until = self.loop.now + self.chance.choice([1.0, 2.5, 4.0])

    def _drain(self, victim: Process) -> None:
        runtime = self.workers.get(victim)
        if runtime is not None and self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._count("drain", victim)
            self.workers[victim] = None
            self.loop.spawn(victim, self._stop(victim, runtime))
            self.loop.later(self.chance.random(), None, self.start_worker)

    async def _stop(self, victim: Process, runtime: RedisRuntime) -> None:
        await runtime.close()
        self.note(f"==== {victim} has stopped")
        self.loop.later(0.0, None, self._gone, victim)

    def _gone(self, victim: Process) -> None:
        if victim.alive:
            self._bury(victim)

    def _break(self, victim: Process) -> None:
        lines = [line for line in self.network.lines if line.process is victim]
        if lines:
            self._count("break", victim)
            self.network.break_line(self.chance.choice(lines))

    def _snapshot_now(self) -> None:
        self._snapshot = self.store.snapshot(), len(self.events)

    def _snapshot_taken(self) -> bool:
        return self._snapshot is not None

    def _rollback(self) -> None:
        if self._snapshot is None or not self.raging:
            return
        snapshot, events = self._snapshot
        self._count("rollback")
        self.restarts += 1
        self.store.restore(snapshot)
        for root in self.events[events:]:
            self._event(root)
        if self.chance.random() < 0.7:  # as a restart does; a FLUSHALL does not
            self.network.break_all()

    # -- processes

    def start_worker(self) -> None:
        """One more worker process."""
        self._numbers += 1
        process = self.loop.start(f"w{self._numbers}")
        self.workers[process] = None
        self.loop.spawn(process, self._work(process))

    async def _work(self, process: Process) -> None:
        while True:
            try:
                runtime = await make_worker(self.network, lease=self.plan.lease, partitions=self.plan.partitions)
            except Exception as error:  # its supervisor starts it again
                self.note(f"{process} did not start: {error!r}")
                await asyncio.sleep(0.3)
            else:
                self.workers[process] = runtime
                return

    async def _open_client(self) -> None:
        publisher = Publisher(URL, namespace=NAMESPACE)
        await publisher.open()
        publisher.register(str)
        self.publisher = publisher

    async def _be_client(self) -> None:
        half = len(self.plan.roots) // 2
        for number, root in enumerate(self.plan.roots):
            while self.plan.news and number == half and not self.subscribed:
                self._ask_to_subscribe()
                await asyncio.sleep(0.2)
            await asyncio.sleep(self.chance.choice([0.0, 0.001, 0.05, 0.5]))
            self._send(root)
            if root.how == "publish" and self.chance.random() < 0.2:
                self.faults["duplicate"] += 1
                self._send(root)

    def _ask_to_subscribe(self) -> None:
        """Let the readers hear the news, by way of some worker; no process awaits what another does."""
        for process, runtime in self.workers.items():
            if runtime is not None:
                self.loop.spawn(process, self._subscribe(runtime))
                return

    async def _subscribe(self, runtime: RedisRuntime) -> None:
        with suppress(SubscriptionError, RuntimeNotRunning, ServerUnavailable):  # asked before; it stops
            await runtime.add_subscription(TypeSubscription(NEWS, "reader"))
            self.subscribed = True

    def _send(self, root: Root) -> None:
        if root.how == "event":
            self.events.append(root)
            self._event(root)
        else:
            asyncio.get_running_loop().create_task(self._send_message(root))

    def _event(self, root: Root) -> None:
        """From another system: one XADD, which reaches the server."""
        type, _, key = root.agent.partition("/")
        data = Work(label=root.label, program=root.program).model_dump_json()
        words = ("XADD", f"sb:{{{NAMESPACE}}}:events", "*", "type", "Work", "topic", f"{type}/{key}", "data", data)
        self.network.execute([word.encode() for word in words])

    async def _send_message(self, root: Root) -> None:
        assert self.publisher is not None
        type, _, key = root.agent.partition("/")
        work = Work(label=root.label, program=root.program)
        try:
            if root.how == "publish":
                await self.publisher.publish(work, TopicId(type, key), message_id=root.label)
            else:
                self.replies[root.label] = await self.publisher.call(work, AgentId(type, key), message_id=root.label)
        except Poison as error:
            self.replies[root.label] = f"raised:{error}"
        except OutcomeUnknown as error:
            self.replies[root.label] = "unknown", str(error)
        except Exception as error:
            self.replies[root.label] = "failed", repr(error)

    async def _send_again(self, root: Root) -> None:
        """The client repeats everything, since the server may have lost it; what arrived is known there."""
        assert self.publisher is not None
        type, _, key = root.agent.partition("/")
        work = Work(label=root.label, program=root.program)
        if root.how == "publish":
            await self.publisher.publish(work, TopicId(type, key), message_id=root.label)
        elif root.how == "call":
            await self.publisher.send(work, AgentId(type, key), message_id=root.label)

    # -- the course of it

    def run(self) -> Outcome:
        """From the start to the verdict."""
        self.store.reset()
        STUMBLES.clear()
        self.store.commands = 0
        with self._seeded(), self.loop.world():
            self._run()
        self.problems += checker.wrong_replies(self.replies, expect(self.plan.roots))
        return Outcome(
            self.seed,
            self.problems,
            self.faults,
            self.history,
            self.digest.hexdigest(),
            self.store.commands,
            self.loop.now - 1000.0,
        )

    def _run(self) -> None:
        for _ in range(self.plan.workers):
            self.start_worker()
        opening = self.loop.spawn(self.client, self._open_client())
        if not self.loop.run_until(lambda: opening.done() and all(self.workers.values()), 30.0):
            self.problems.append("the workers did not start")
            return
        self.raging = True
        self.network.weather = self.plan.weather
        client = self.loop.spawn(self.client, self._be_client())
        if self.plan.rollback:
            at = self.chance.uniform(0.0, 1.5)
            self.loop.later(at, None, self._snapshot_now)
            self.loop.later(at + self.chance.choice([0.02, 0.1, 0.5, 2.0]), None, self._rollback)
        self.loop.run_until(lambda: client.done() and self._at_rest(), self.chance.choice([2.0, 4.0, 6.0]))
        self._heal()
        if not self.loop.run_until(lambda: client.done(), 30.0):
            self.problems.append("the client did not get its messages sent")
        again = [self.loop.spawn(self.client, self._send_again(root)) for root in self.plan.roots]
        self._looked = 0.0
        if not self.loop.run_until(lambda: all(t.done() for t in again) and self._at_rest(), 60.0):
            self.problems.append("it did not come to rest")
        self.loop.run_until(lambda: False, 0.3)
        self._judge()

    def _heal(self) -> None:
        """From now on nothing goes wrong."""
        self.note("==== healed")
        self.raging = False
        self.network.weather = Weather(delay=0.002)
        for process in self.loop.processes:
            process.asleep_until = process.starved_until = 0.0
        if not self.workers:
            self.start_worker()

    _looked = 0.0

    def _at_rest(self) -> bool:
        """True when nothing waits anywhere; looked at a few times a second."""
        if self.loop.now < self._looked + 0.1:
            return False
        self._looked = self.loop.now
        lengths = self.store.ask(*(("XLEN", inbox) for inbox in checker.inboxes(self.plan.partitions)))
        calls = [root.label for root in self.plan.roots if root.how == "call"]
        idle = all(runtime is None or runtime._dispatcher.idle for runtime in self.workers.values())
        return not any(lengths) and idle and all(label in self.replies for label in calls)

    def _judge(self) -> None:
        found = checker.look(self.store)
        self.problems += checker.compare(found, expect(self.plan.roots))
        if not self.faults["rollback"]:
            self.problems += checker.roots_out_of_order(found.logs, self.plan.roots)

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Everything random in the process under test comes from the seed."""
        bytes_of = random.Random(f"{self.seed}/bytes").randbytes
        state = random.getstate()
        random.seed(f"{self.seed}/random")
        logger = logging.getLogger("stagebell")
        before = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            with mock.patch.object(os, "urandom", bytes_of), mock.patch.object(ids, "urandom", bytes_of):
                yield
        finally:
            random.setstate(state)
            logger.setLevel(before)


def tell(name: str, command: Command, answer: Any) -> str:
    """A script and its answer, in one line."""
    keys = int(command[2])
    arguments = b" ".join(command[3 + keys :]).decode("utf-8", "replace")
    parts: list[Any] = answer if isinstance(answer, list) else [answer]
    said = " ".join(part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in parts)
    return f"{name} {command[3].decode().removeprefix('sb:')} {arguments[:700]} → {said[:300]}"


def run_schedule(store: Store, seed: int) -> Outcome:
    """Run one seed on this server."""
    # Finally-blocks of those who were killed run when their coroutines are collected, and reach nobody.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        schedule = Schedule(store, seed)
        outcome = schedule.run()
        logging.disable(logging.CRITICAL)
        del schedule
        gc.collect()
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook
    return outcome
