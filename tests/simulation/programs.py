"""Programs by seed; `expected` says what must come of them.

Calls go to agents that come later in one order, or back to an agent that waits further up, so that no two chains of
calls can wait for each other. Of the calls of one gather, each branch has agents of its own; what it calls back above
the gather makes no calls, since nested turns of one agent wait for each other.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from tests.simulation.agents import AGENTS, NEWS, Op

RECORD = "record"
ONCE = ("call", "cancel", "deadline")
"""How messages are sent that have one attempt."""


class Root(NamedTuple):
    """A message from outside of all turns."""

    label: str
    agent: str
    program: list[Op]
    how: str  # call, publish, event or timer; cancel and deadline: a call that may end before its time


def make_roots(
    chance: random.Random, *, news: bool, timers: bool, limits: bool, puts_off: bool, lossy: bool
) -> list[Root]:
    """The messages of one schedule.

    Args:
        chance: the one source of randomness.
        news: those in the second half may publish news.
        timers: turns may set some, and the client, unless the server loses its writes.
        limits: calls may be given up, and have deadlines.
        puts_off: replies may come later.
        lossy: the server will lose writes.
    """
    roots: list[Root] = []
    count = chance.randrange(3, 9)
    ways = ["call", "call", "publish", "publish", "event"] + ["timer"] * (timers and not lossy)
    ways += ["cancel", "deadline"] * limits
    for number in range(count):
        agent = chance.choice(AGENTS)
        writer = _Writer(chance, news and number >= count // 2, timers, limits, puts_off)
        how = chance.choice(ways)
        program = writer.program(3, [agent], AGENTS, [agent])
        roots.append(
            Root(f"m{number}", agent, program if how in ONCE else writer.perhaps_stumbling(agent, program), how)
        )
    return roots


class _Writer:
    def __init__(self, chance: random.Random, news: bool, timers: bool, limits: bool, puts_off: bool) -> None:
        self._chance = chance
        self._news = news
        self._timers = timers
        self._limits = limits
        self._puts_off = puts_off

    def program(self, depth: int, base: list[str], later: list[str], back: list[str]) -> list[Op]:
        """For a turn that is reached through `base`: `later` may be called, `back` may be called back."""
        chance, ops = self._chance, list[Op]()
        for _ in range(chance.choice([0, 1, 1, 2]) if depth > 0 else 0):
            pick = chance.random()
            if pick < 0.35:
                ops.append(self._publish(depth, base[-1]))
            elif pick < 0.43 and self._news:
                ops.append([NEWS, chance.choice("ab"), self._chain(depth, "")])
            elif pick < 0.48 and self._timers:
                ops.append(self._timer(depth, base[-1]))
            elif pick < 0.79:
                ops += self._call(depth, base, later, back)
            elif pick < 0.85:
                ops += self._shaky(base, later, back)
            else:
                ops += self._gather(depth, base, later, back)
            if self._limits and ops and ops[-1][0] == "call" and chance.random() < 0.3:
                ops[-1] = ["hurry", *ops[-1][1:], chance.choice([0.002, 0.02, 0.2, 1.0])]
            if chance.random() < 0.2:
                ops.append(["sleep", chance.choice([0.0, 0.002, 0.05, 0.6])])
        if chance.random() < 0.05:
            ops.append(["raise"])
        return ops

    def perhaps_stumbling(self, agent: str, program: list[Op]) -> list[Op]:
        """Of a message that is tried again: let its first attempts fail, perhaps with calls that do so, too."""
        chance = self._chance
        if chance.random() < 0.7 or fails(program):
            return program
        for _ in range(chance.choice([0, 1, 2])):
            shaky = self._shaky([agent], AGENTS, [agent])
            program[(at := chance.randrange(len(program) + 1)) : at] = shaky
        program.insert(chance.choice([chance.randrange(len(program) + 1), len(program)]), self._stumble())
        return program

    def _stumble(self) -> Op:
        return ["stumble", self._chance.choice([1, 1, 2])]

    def _shaky(self, base: list[str], later: list[str], back: list[str]) -> list[Op]:
        """A call that fails at first; whom it calls back has seen something by then."""
        porters = [agent for agent in self._later(base, later) if agent.startswith("porter")]
        return [["call", self._chance.choice(porters), self._shaky_work(back)]] if porters else []

    def _shaky_work(self, back: list[str]) -> list[Op]:
        work = [["call", self._chance.choice(back), []]] if self._chance.random() < 0.7 else []
        return [*work, self._stumble()]

    def _publish(self, depth: int, sender: str) -> Op:
        agent = self._chance.choice([agent for agent in AGENTS if agent != sender])
        return ["publish", agent, self._chain(depth, agent)]

    def _timer(self, depth: int, sender: str) -> Op:
        agent, delay = self._chance.choice(AGENTS), self._chance.choice([0.0, 0.003, 0.1, 0.5, 1.5])
        how = "agent" if agent == sender else self._chance.choice(["agent", "topic"])  # nobody hears what he publishes
        return ["later", agent, self._chain(depth, agent), delay, how]

    def _chain(self, depth: int, agent: str) -> list[Op]:
        """What starts anew: its own calls hold nobody above."""
        if not agent or self._chance.random() < 0.5:
            return []
        return self.perhaps_stumbling(agent, self.program(min(depth - 1, 2), [agent], AGENTS, [agent]))

    def _later(self, base: list[str], later: list[str]) -> list[str]:
        last = max(AGENTS.index(agent) for agent in base)
        return [agent for agent in later if AGENTS.index(agent) > last]

    def _call(self, depth: int, base: list[str], later: list[str], back: list[str]) -> list[Op]:
        upward = self._later(base, later)
        choices = upward + [agent for agent in back if agent != base[-1]] * 2 + [base[-1]] * (base[-1] in back)
        if not choices:
            return []
        agent = self._chance.choice(choices)
        work = self.program(depth - 1, [*base, agent], upward, [*back, agent])
        return [["call", agent, self._perhaps_deferred(work, base, agent)]]

    def _perhaps_deferred(self, work: list[Op], base: list[str], agent: str) -> list[Op]:
        """Let the reply come later, by way of an agent that cannot be waiting for it."""
        helpers = [helper for helper in AGENTS if AGENTS.index(helper) > max(map(AGENTS.index, [*base, agent]))]
        if not self._puts_off or agent in base or fails(work) or not helpers or self._chance.random() < 0.7:
            return work
        return [*work, ["defer", self._chance.choice(helpers)]]

    def _gather(self, depth: int, base: list[str], later: list[str], back: list[str]) -> list[Op]:
        upward = self._later(base, later)
        self._chance.shuffle(upward)
        branches: list[Any] = []
        for number in range(min(len(upward), self._chance.choice([2, 2, 3]))):
            own = sorted(upward[number::3], key=AGENTS.index)
            agent = own[0]
            work = self.program(depth - 1, [*base, agent], own[1:], [agent])
            if agent.startswith("porter") and self._chance.random() < 0.3:
                work = self._shaky_work(back)
            elif self._chance.random() < 0.5 and depth > 1:
                work.insert(0, ["call", self._chance.choice(back), self._leaf()])
            branches.append([agent, work])
        return [["gather", branches]] if branches else []

    def _leaf(self) -> list[Op]:
        return [["raise"]] if self._chance.random() < 0.1 else []


def with_records(roots: list[Root]) -> list[Root]:
    """The same, with values that some turns keep: between any two steps, as often as not."""
    chance = random.Random(repr(roots))
    return [root._replace(program=_recording(chance, root.program)) for root in roots]


def _recording(chance: random.Random, program: list[Op]) -> list[Op]:
    found = [[RECORD]] if chance.random() < 0.5 else []
    for name, *rest in program:
        if name == "gather":
            rest = [[[agent, _recording(chance, work)] for agent, work in rest[0]]]
        elif name in ("publish", NEWS, "call", "hurry", "later"):
            rest[1] = _recording(chance, rest[1])
        found += [[name, *rest], *([[RECORD]] if chance.random() < 0.5 else [])]
    return found


def fails(program: list[Op]) -> bool:
    """True when its handler raises, however often it is tried."""
    return ["raise"] in program


def stumbles(program: list[Op]) -> int:
    """In how many attempts its handler raises at first, as long as nobody dies in them."""
    return sum(op[1] for op in program if op[0] == "stumble")
