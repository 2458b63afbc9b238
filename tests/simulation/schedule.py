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
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any
from unittest import mock

from stagebell import RedisRuntime
from stagebell.errors import ServerUnavailable
from stagebell.messages import ids
from stagebell.runtime.engine.clock import SystemClock
from tests.simulation import checker
from tests.simulation.agents import ASKED, RECORDS, REFUSED, STUMBLES
from tests.simulation.checker_of_desk import Holders, compare_desk
from tests.simulation.client import Client
from tests.simulation.desk import BEGUN, DONE
from tests.simulation.expected import Expected, Facts, expect
from tests.simulation.faults import Faults
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Command, Line, Network, Weather
from tests.simulation.plan import Outcome, add_desk, is_upgraded, make_plan
from tests.simulation.programs import ONCE
from tests.simulation.store import Store
from tests.simulation.upgrade import Upgrade
from tests.simulation.workers import VirtualClock, make_worker

TURN_SCRIPTS = frozenset({"send", "begin", "call", "commit", "fail", "fanout", "retry", "acquire", "release"}) | {
    *("schedule", "unschedule", "promote", "end_call")
}


class Schedule:
    """One run of one seed on an empty server."""

    def __init__(self, store: Store, seed: int, *, limits: bool, desk: bool = True) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.plan = make_plan(self.chance, limits=limits, records=seed % 10 == 2)
        if desk:
            add_desk(self.plan, seed)
        self.loop = SimulatedLoop(self.chance)
        self.loop.set_exception_handler(self._failed)
        self.store = store
        self.network = Network(self.loop, store, self._watch)
        self.workers: dict[Process, RedisRuntime | None] = {}
        self.client_process = self.loop.start("client")
        self.client = Client(self)
        self.faults = Faults(self)
        self.upgrade = Upgrade(self, random.Random(f"{seed}/upgrade"), begins=is_upgraded(seed))
        self.problems: list[str] = []
        self._worn_out = False
        self._holders = Holders()
        self.history: list[str] = []
        self.digest = blake2b(digest_size=16)
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
        self._holders.watch(name, command, answer)
        if name in TURN_SCRIPTS:
            self.note(f"{line.process} {tell(name, command, answer)}")
            if self.faults.raging:
                self.faults.perhaps(line)

    # -- processes

    def start_worker(self) -> None:
        """One more worker process."""
        self._numbers += 1
        process = self.loop.start(f"w{self._numbers}")
        self.workers[process] = None
        self.loop.spawn(process, self._work(process, self.upgrade.version_of(process)))

    async def _work(self, process: Process, version: int) -> None:
        while True:
            try:
                runtime = await make_worker(self.network, self.plan, version)
            except Exception as error:  # its supervisor starts it again
                self.note(f"{process} did not start: {error!r}")
                await asyncio.sleep(0.3)
            else:
                self.workers[process] = runtime
                self.upgrade.started(process)
                return

    # -- the course of it

    def run(self) -> Outcome:
        """From the start to the verdict."""
        self.store.reset()
        for table in (STUMBLES, RECORDS, ASKED, REFUSED, BEGUN, DONE):
            table.clear()
        self.store.commands = 0
        with self._seeded(), self.loop.world():
            self._run()
        if not self._worn_out:
            self.problems += checker.wrong_replies(self.client.replies, self._expected)
        return Outcome(
            self.seed,
            self.problems,
            self.faults.counts,
            self.history,
            self.digest.hexdigest(),
            self.store.commands,
            self.loop.now - 1000.0,
        )

    def _run(self) -> None:
        for _ in range(self.plan.workers):
            self.start_worker()
        opening = self.loop.spawn(self.client_process, self.client.open())
        if not self.loop.run_until(lambda: opening.done() and all(self.workers.values()), 30.0):
            self.problems.append("the workers did not start")
            return
        self.faults.raging = True
        self.network.weather = self.plan.weather
        self.upgrade.plan()
        client = self.loop.spawn(self.client_process, self.client.work())
        if self.plan.rollback:
            at = self.chance.uniform(0.0, 1.5)
            self.loop.later(at, None, self.faults.snapshot)
            self.loop.later(at + self.chance.choice([0.02, 0.1, 0.5, 2.0]), None, self.faults.rollback)
        self.loop.run_until(lambda: client.done() and self._at_rest(), self.chance.choice([2.0, 4.0, 6.0]))
        self._heal()
        if not self.loop.run_until(lambda: client.done(), 30.0):
            self.problems.append("the client did not get its messages sent")
        if not self.faults.counts[
            "rollback"
        ]:  # then nothing is lost, and the order is judged: no second client in between
            self.loop.run_until(lambda: not self.client.waits, 30.0)
        again = self.loop.spawn(self.client_process, self.client.send_again())
        self._looked = self.network.busy_until  # what was under way when all was healed may come late
        rested = self.loop.run_until(lambda: again.done() and self._at_rest(), 60.0)
        self.loop.run_until(lambda: False, 0.3)  # what was just leaving arrives, and is dealt with
        if not rested or not self.loop.run_until(self._at_rest, 30.0):
            self.problems.append("it did not come to rest")
        self._judge()

    def _heal(self) -> None:
        """From now on nothing goes wrong."""
        self.note("==== healed")
        self.faults.raging = False
        self.network.weather = Weather(delay=0.002)
        for process in self.loop.processes:
            process.asleep_until = process.starved_until = 0.0
        self.upgrade.finish()
        if not self.workers:
            self.start_worker()

    @property
    def _expected(self) -> Expected:
        facts = Facts(self.client.unsure, self.client.never, REFUSED, BEGUN, DONE)
        return expect(self.plan.roots, facts)

    _looked = 0.0

    def _at_rest(self) -> bool:
        """True when nothing waits anywhere; looked at a few times a second."""
        if self.loop.now < self._looked + 0.1:
            return False
        self._looked = self.loop.now
        lengths = self.store.ask(*checker.waiting(self.plan.partitions))
        if self.plan.desk:
            lengths += [self.store.ask(("XLEN", key))[0] for key in self.store.ask(("KEYS", "sb:{sim:w:*}:in"))[0]]
        calls = [root.label for root in self.plan.roots if root.how in (*ONCE, "timer")]
        idle = all(runtime is None or runtime._dispatcher.idle for runtime in self.workers.values())
        return not any(lengths) and idle and self.upgrade.done and all(label in self.client.replies for label in calls)

    def _judge(self) -> None:
        found = checker.look(self.store)
        self._worn_out = found.worn_out
        if found.worn_out:
            self.problems = [f"left behind: {left}" for left in found.left]
            return
        self.problems += checker.compare(found, self._expected)
        if self.plan.desk:
            roots = [root.label for root in self.plan.roots]
            self.problems += compare_desk(
                found, self._expected, self.client.replies, roots, self._holders, self.faults.restarts
            )
        if not self.faults.counts["rollback"]:
            self.problems += checker.roots_out_of_order(found.logs, self.plan.roots)
            self.problems += checker.records_that_changed(RECORDS, self._expected)

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Everything random in the process under test comes from the seed."""
        bytes_of = random.Random(f"{self.seed}/bytes").randbytes
        state = random.getstate()
        random.seed(f"{self.seed}/random")
        loggers = [logging.getLogger(name) for name in ("stagebell", "autogen_core")]
        before = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            clock = mock.patch.object(SystemClock, "now_ms", VirtualClock(self.loop).now_ms)
            with clock, mock.patch.object(os, "urandom", bytes_of), mock.patch.object(ids, "urandom", bytes_of):
                yield
        finally:
            random.setstate(state)
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


def tell(name: str, command: Command, answer: Any) -> str:
    """A script and its answer, in one line."""
    keys = int(command[2])
    arguments = b" ".join(command[3 + keys :]).decode("utf-8", "replace")
    parts: list[Any] = answer if isinstance(answer, list) else [answer]
    said = " ".join(part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in parts)
    return f"{name} {command[3].decode().removeprefix('sb:')} {arguments[:700]} → {said[:300]}"


def run_schedule(store: Store, seed: int, *, limits: bool = True, desk: bool = True) -> Outcome:
    """Run one seed on this server.

    Without `limits` no call is given up, in any schedule, or has a deadline; without `desk` no agent is bound to its
    process.
    """
    # Finally-blocks of those who were killed run when their coroutines are collected, and reach nobody.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        schedule = Schedule(store, seed, limits=limits, desk=desk)
        outcome = schedule.run()
        logging.disable(logging.CRITICAL)
        del schedule
        gc.collect()
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook
    return outcome
