"""A run of numbered messages, and the checker of what became of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from autogen_core import AgentId, TopicId

from stagebell import Publisher
from stagebell.errors import OutcomeUnknown
from tests.failure.agents import COLLECTORS, FILES, File, Measure, Measured
from tests.failure.view import View


class Load:
    """Messages from one client to many analysers: to each, numbers 1, 2, 3, … by publishes and calls.

    Args:
        publisher: open.
        seed: what decides between publish and call, and the pauses of the handlers.
        agents: how many analysers.
        each: how many messages each of them gets.
        name: the sender's name, as analysers write it down.
        forgiving: the server may lose what it has accepted: a call that then ends in `OutcomeUnknown` is no mistake.
    """

    def __init__(
        self,
        publisher: Publisher,
        seed: int,
        *,
        agents: int = 200,
        each: int = 10,
        name: str = "client",
        forgiving: bool = False,
    ) -> None:
        self.forgiving = forgiving
        self.lost = 0
        self.seed = seed
        self.agents = agents
        self.each = each
        self.name = name
        self.sent = 0
        self.replies: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._publisher = publisher
        publisher.register(Measured)

    @property
    def total(self) -> int:
        """How many messages there will be."""
        return self.agents * self.each

    async def run(self, limit: float = 40.0) -> None:
        """Send everything, and wait for the reply of each call."""
        async with asyncio.timeout(limit):
            await asyncio.gather(*(self._lane(f"a{i}") for i in range(self.agents)))

    async def _lane(self, key: str) -> None:
        chance = random.Random(f"{self.seed}/{key}")
        for number in range(1, self.each + 1):
            pause = chance.choice((0.0, 0.0, 0.001, 0.01))
            if chance.random() < 0.4:
                await self._call(key, number, pause)
            else:
                message = File(sender=self.name, number=number, pause=pause)
                await self._publisher.publish(message, TopicId(FILES, key))
            self.sent += 1

    async def _call(self, key: str, number: int, pause: float) -> None:
        self.calls[key] += 1
        try:
            reply = await self._publisher.call(
                Measure(sender=self.name, number=number, pause=pause), AgentId("analyser", key)
            )
        except OutcomeUnknown:
            if not self.forgiving:
                raise
            self.lost += 1
            return
        self.replies[key] += 1
        if reply.number != number:
            self.wrong.append(f"{key} was asked {number} and answered {reply.number}")


def check(view: View, loads: Sequence[Load]) -> None:
    """Every message took effect exactly once and in order, and every call was answered."""
    context = f"seeds {[load.seed for load in loads]}"
    problems: list[str] = []
    for load in loads:
        problems += load.wrong
        if load.replies != load.calls:
            problems.append(f"{sum((load.calls - load.replies).values())} calls of {load.name} without a reply")
    states = {kind: view.states(kind) for kind in ("analyser", "collector", "tally")}
    for load in loads:
        for key in (f"a{i}" for i in range(load.agents)):
            heard = states["analyser"].get(key, {}).get("heard", {}).get(load.name, [])
            problems += _unlike(heard, load.each, f"{load.name} → analyser/{key}")
    problems += _check_passed_on(states)
    total = sum(load.total for load in loads)
    for kind in ("collector", "tally"):
        count = sum(len(numbers) for state in states[kind].values() for numbers in state["heard"].values())
        if count != total:
            problems.append(f"the {kind}s have {count} messages of {total}")
    if letters := view.dead_letters():
        problems.append(f"{len(letters)} dead letters, the first: {letters[0]}")
    assert not problems, f"{context}: {len(problems)} problems\n" + "\n".join(problems[:12])


def check_what_survived(view: View, loads: Sequence[Load]) -> None:
    """As `check`, when the server has lost its last writes: what was accepted and lost is missing, and nothing else.

    State, inbox, outputs and replies of a turn roll back together. So nothing took effect twice or out of order, and
    what one agent says it has sent is what the other has heard.
    """
    problems = [problem for load in loads for problem in load.wrong]
    states = {kind: view.states(kind) for kind in ("analyser", "collector", "tally")}
    for key, state in states["analyser"].items():
        for sender, heard in state["heard"].items():
            if heard != sorted(set(heard)):
                problems.append(f"{sender} → analyser/{key}: repeated or out of order ({heard})")
    problems += _check_passed_on(states)
    problems += [f"dead letter: {letter}" for letter in view.dead_letters()]
    assert not problems, f"seeds {[load.seed for load in loads]}: {len(problems)} problems\n" + "\n".join(problems[:12])


def _check_passed_on(states: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """What analysers sent is what collectors and tallies heard."""
    problems: list[str] = []
    receivers = {f"{kind[0]}{i}": kind for kind in ("collector", "tally") for i in range(COLLECTORS)}
    for key, state in states["analyser"].items():
        for receiver, count in state.get("sent", {}).items():
            kind = receivers[receiver]
            heard = states[kind].get(receiver, {}).get("heard", {}).get(key, [])
            problems += _unlike(heard, count, f"analyser/{key} → {kind}/{receiver}")
    return problems


def _unlike(heard: list[int], count: int, what: str) -> list[str]:
    if heard == list(range(1, count + 1)):
        return []
    repeated = [number for number, times in Counter(heard).items() if times > 1]
    lost = sorted(set(range(1, count + 1)) - set(heard))
    how = f"repeated {repeated} " if repeated else ""
    how += f"lost {lost} " if lost else ""
    return [f"{what}: {how or 'out of order '}({heard})"]
