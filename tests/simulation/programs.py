"""Programs by seed, and what must come of them: computed here, without the runtime.

Calls go to agents that come later in one order, or back to an agent that waits further up, so that no two chains of
calls can wait for each other. Of the calls of one gather, each branch has agents of its own; what it calls back above
the gather makes no calls, since nested turns of one agent wait for each other.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.agents import NEWS, Op

AGENTS = ["clerk/a", "porter/a", "clerk/b", "clerk/c", "porter/b", "clerk/d"]
ATTEMPTS = 3
"""So often a published message is handled when its handler raises."""
READERS = ("clerk", "reader")
"""The types that subscribe to the news; `reader` from some moment on."""


class Root(NamedTuple):
    """A message from outside of all turns."""

    label: str
    agent: str
    program: list[Op]
    how: str  # call, publish or event


def make_roots(chance: random.Random, *, news: bool) -> list[Root]:
    """The messages of one schedule; `news`: those in the second half may publish news."""
    roots: list[Root] = []
    count = chance.randrange(3, 9)
    for number in range(count):
        agent = chance.choice(AGENTS)
        writer = _Writer(chance, news and number >= count // 2)
        how = chance.choice(["call", "call", "publish", "publish", "event"])
        roots.append(Root(f"m{number}", agent, writer.program(3, [agent], AGENTS, [agent]), how))
    return roots


class _Writer:
    def __init__(self, chance: random.Random, news: bool) -> None:
        self._chance = chance
        self._news = news

    def program(self, depth: int, base: list[str], later: list[str], back: list[str]) -> list[Op]:
        """For a turn that is reached through `base`: `later` may be called, `back` may be called back."""
        chance, ops = self._chance, list[Op]()
        for _ in range(chance.choice([0, 1, 1, 2]) if depth > 0 else 0):
            pick = chance.random()
            if pick < 0.35:
                ops.append(self._publish(depth, base[-1]))
            elif pick < 0.43 and self._news:
                ops.append([NEWS, chance.choice("ab"), self._chain(depth, "")])
            elif pick < 0.85:
                ops += self._call(depth, base, later, back)
            else:
                ops += self._gather(depth, base, later, back)
            if chance.random() < 0.2:
                ops.append(["sleep", chance.choice([0.0, 0.002, 0.05, 0.6])])
        if chance.random() < 0.05:
            ops.append(["raise"])
        return ops

    def _publish(self, depth: int, sender: str) -> Op:
        agent = self._chance.choice([agent for agent in AGENTS if agent != sender])
        return ["publish", agent, self._chain(depth, agent)]

    def _chain(self, depth: int, agent: str) -> list[Op]:
        """What starts anew: its own calls hold nobody above."""
        if not agent or self._chance.random() < 0.5:
            return []
        return self.program(min(depth - 1, 2), [agent], AGENTS, [agent])

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
        if agent in base or _fails(work) or not helpers or self._chance.random() < 0.7:
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
            if self._chance.random() < 0.5 and depth > 1:
                work.insert(0, ["call", self._chance.choice(back), self._leaf()])
            branches.append([agent, work])
        return [["gather", branches]] if branches else []

    def _leaf(self) -> list[Op]:
        return [["raise"]] if self._chance.random() < 0.1 else []


@dataclass
class Expected:
    """What must be true in the end."""

    lines: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    versions: Counter[str] = field(default_factory=Counter[str])
    letters: Counter[str] = field(default_factory=Counter[str])
    loose: Counter[str] = field(default_factory=Counter[str])
    """How often turns of each label fail: of these, lines remain only in savepoints."""
    failing_calls: set[str] = field(default_factory=set[str])
    """Labels of calls of the client that fail: repeated without a caller they go to the dead letters."""
    replies: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class _Turn:
    agent: str
    saved: bool = False
    above: _Turn | None = None


def expect(roots: list[Root]) -> Expected:
    """Work out what these messages do."""
    expected = Expected()
    for root in roots:
        if root.how == "call":
            reply = _call(expected, root.label, root.agent, root.program, None)
            expected.replies[root.label] = reply
            if not reply.startswith("ok"):
                expected.failing_calls.add(root.label)
        else:
            _publish(expected, root.label, root.agent, root.program)
    return expected


def _publish(expected: Expected, label: str, agent: str, program: list[Op]) -> None:
    if not _turn(expected, label, agent, program, None, attempts=ATTEMPTS if _fails(program) else 1):
        expected.letters[label] += 1


def _call(expected: Expected, label: str, agent: str, program: list[Op], above: _Turn | None) -> str:
    return f"ok:{label}" if _turn(expected, label, agent, program, above) else f"raised:{label}"


def _published(op: Op, agent: str) -> Op:
    """What leaves with the commit: a deferred reply goes round by way of a helper."""
    return ["publish", op[1], [["publish", agent, []]]] if op[0] == "defer" else op


def _fails(program: list[Op]) -> bool:
    return ["raise"] in program


def _turn(
    expected: Expected, label: str, agent: str, program: list[Op], above: _Turn | None, *, attempts: int = 1
) -> bool:
    """One turn; says whether its handler returned. Each attempt makes the calls again that ended in a failure."""
    me = _Turn(agent, above=above)

    def call(name: str, callee: str, work: list[Op]) -> str:
        for _ in range(attempts if _fails(work) else 1):
            reply = _call(expected, name, callee, work, me)
        return reply

    lines, sent, good = [label], list[tuple[str, Op]](), True
    for number, op in enumerate(program):
        match op:
            case ["publish" | "news" | "defer", *_]:
                sent.append((f"{label}.{len(sent)}o", _published(op, agent)))
            case ["call", callee, work]:
                reply = call(f"{label}.{number}", callee, work)
                lines.append(f"{label}#{number}={reply}")
            case ["gather", calls]:
                replies = [call(f"{label}.{number}.{branch}", *each) for branch, each in enumerate(calls)]
                lines.append(f"{label}#{number}={' '.join(replies)}")
            case ["raise"]:
                good = False
            case _:
                pass
    _end(expected, me, label, lines, good)
    for output, op in sent if good else ():
        for receiver in _receivers(op, agent):
            _publish(expected, output, receiver, op[2])
    return good


def _end(expected: Expected, me: _Turn, label: str, lines: list[str], good: bool) -> None:
    if me.agent.startswith("porter"):
        return
    if good:
        expected.lines.update((me.agent, line) for line in lines)
    else:
        expected.loose[label] += 1
    above = me.above
    while above is not None and above.agent != me.agent:
        above = above.above
    if good or me.saved:
        if above is None:
            expected.versions[me.agent] += 1
        else:
            above.saved = True


def _receivers(op: Op, sender: str) -> list[str]:
    if op[0] == "publish":
        return [op[1]]
    return [agent for agent in (f"{type}/{op[1]}" for type in READERS) if agent != sender]
