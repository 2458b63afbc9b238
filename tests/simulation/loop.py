"""An event loop for several simulated processes: virtual time, and one seeded source of every choice.

    timers and network ──due──▶ process.ready ──one iteration──▶ callbacks
          ▲                                                          │
          └───────────── call_at, Network.send ◀─────────────────────┘

What holds at all times
    - Every callback belongs to the process that was running when it was scheduled; processes reach each other through
      the simulated server only.
    - Callbacks of one process run in asyncio's order; which process runs next, of those that have something to do, is
      drawn. Time stands still while somebody can run, and then jumps to what is due next.
    - A process that was killed runs nothing any more: its tasks are kept, unfinished, until the schedule is over, so
      that no finally-block of them runs (`end_of_world`).
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import random
from asyncio import Handle, Task, TimerHandle, events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

Call = Callable[..., Any]
MOST_STEPS = 40_000
"""Of one wait: a schedule that takes more turns in a circle."""


class Process:
    """One simulated process: what it has to do, whether it lives, and what is the matter with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.asleep_until = 0.0
        self.starved_until = 0.0  # the keeper of its leases reaches nobody, although the process goes on
        self.ready: deque[Handle] = deque()
        self.tasks: list[Task[Any]] = []

    def __repr__(self) -> str:
        return self.name


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the top of this file. `chance` is the one source of randomness of a schedule."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.now = 1000.0
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.connect: Callable[..., Coroutine[Any, Any, Any]] | None = None
        self._due: list[tuple[float, float, int, Process | None, Handle | Call]] = []
        self._dead: list[Process] = []
        self._number = 0
        self._over = False

    # -- what asyncio asks

    def time(self) -> float:
        """Virtual seconds."""
        return self.now

    def call_soon(self, callback: Call, *args: Any, context: Context | None = None) -> Handle:
        """Run it in the next iteration of the process that runs now."""
        handle = Handle(callback, args, self, context)
        if not self._over and self.current is not None:
            self.current.ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Call, *args: Any, context: Context | None = None) -> Handle:
        """The same: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Call, *args: Any, context: Context | None = None) -> TimerHandle:
        """Run it at this virtual time."""
        timer = TimerHandle(when, callback, args, self, context)
        if not self._over and self.current is not None:
            self._push(when, self.current, timer)
        return timer

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Cancelled timers are passed over when they are due."""

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Task[Any]:
        """Every task is kept, for `end_of_world`."""
        task: Task[Any] = Task(coro, loop=self, name=name, context=context)
        if self.current is not None:
            self.current.tasks.append(task)
        return task

    async def create_unix_connection(self, protocol_factory: Call, path: Any = None, **_: Any) -> Any:
        """A connection to the simulated server."""
        assert self.connect is not None
        return await self.connect(protocol_factory)

    # -- what the simulation asks

    def start(self, name: str) -> Process:
        """A new process; `spawn` gives it something to do."""
        process = Process(name)
        self.processes.append(process)
        return process

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> Task[Any]:
        """Run a coroutine as a task of a process."""
        with self.inside(process):
            return self.create_task(work)

    @contextmanager
    def inside(self, process: Process) -> Iterator[None]:
        """What is scheduled belongs to this process."""
        before, self.current = self.current, process
        try:
            yield
        finally:
            self.current = before

    def later(self, delay: float, process: Process | None, call: Call, *args: Any) -> None:
        """Something happens to a process, or to the world (None), after so many virtual seconds."""
        self.at(self.now + delay, process, call, *args)

    def at(self, when: float, process: Process | None, call: Call, *args: Any) -> None:
        """The same, at a virtual time; of several at one time any may be the first."""
        if process is None:
            self._push(when, None, lambda: call(*args))
        else:
            self._push(when, process, Handle(call, args, self, None))

    def kill(self, process: Process) -> None:
        """From now on the process does nothing."""
        process.alive = False
        process.ready.clear()
        self.processes.remove(process)
        self._dead.append(process)

    def step(self) -> None:
        """One iteration of one process; or time goes on to what is due next."""
        self._take_due()
        able = [process for process in self.processes if process.ready and process.asleep_until <= self.now]
        if able:
            self._iterate(able[0] if len(able) == 1 else self.chance.choice(able))
            return
        waking = [process.asleep_until for process in self.processes if process.ready]
        moments = waking + ([self._due[0][0]] if self._due else [])
        assert moments, "nothing will ever happen again"
        self.now = max(self.now, min(moments))

    def run_until(self, done: Callable[[], bool], limit: float) -> bool:
        """Go on until `done()`, at most so many virtual seconds, or steps; says whether it is done."""
        end, steps = self.now + limit, 0
        while self.now < end and steps < MOST_STEPS:
            if done():
                return True
            self.step()
            steps += 1
        return done()

    def _push(self, when: float, process: Process | None, what: Handle | Call) -> None:
        self._number += 1
        heapq.heappush(self._due, (when, self.chance.random(), self._number, process, what))

    def _take_due(self) -> None:
        due = self._due
        while due and due[0][0] <= self.now:
            process, what = heapq.heappop(due)[3:]
            if process is None:
                assert not isinstance(what, Handle)
                what()
            elif process.alive:
                assert isinstance(what, Handle)
                process.ready.append(what)

    def _iterate(self, process: Process) -> None:
        ready = process.ready
        self.current = process
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                if not process.alive:
                    break
        finally:
            self.current = None

    @contextmanager
    def world(self) -> Iterator[None]:
        """Inside, this is the running loop, and nothing is collected behind its back; afterwards all is over."""
        collecting = gc.isenabled()
        gc.disable()
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            self._over = True
            self.end_of_world()
            events._set_running_loop(before)
            if collecting:
                gc.enable()

    def end_of_world(self) -> None:
        """Let go of everything; whatever a finally-block still asks for is not heard."""
        self._due.clear()
        for process in self.processes + self._dead:
            process.ready.clear()
            for task in process.tasks:
                task._log_destroy_pending = False
            process.tasks.clear()
        self.close()
