"""An agent that is bound to its process, and what it has done: it has no state from which that could be read.

It lives and dies with its process. So of each message to it there is at most one attempt, and that may be cut short
anywhere; what it had sent by then has the effects that anybody's messages have.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from autogen_core import MessageContext, TopicId

from tests.simulation.agents import AGENTS, ASK, DESK, NEWS, Op, Porter, Run, Work
from tests.simulation.programs import ONCE, Root, stumbles

ALONE = "clerk/z"
"""Whom the desk calls: nobody else does, so it never waits for an agent that waits for it."""
BEGUN: Counter[str] = Counter()
"""How often the desk began to handle each message, and to send each of its own."""
DONE: Counter[str] = Counter()
"""How often it ended that."""


class Desk(Porter):
    """Carries programs out, in memory."""

    async def on_message_impl(self, message: Work, ctx: MessageContext) -> Any:
        """Carry out the program."""
        BEGUN[message.label] += 1
        reply = await super().on_message_impl(message, ctx)
        DONE[message.label] += 1
        return reply

    async def _publish(self, topic: TopicId, label: str, program: list[Op]) -> None:
        BEGUN[label] += 1
        await super()._publish(topic, label, program)
        DONE[label] += 1

    async def do_call(self, run: Run, agent: str, program: list[Op]) -> None:
        """Call, and do not care for the reply."""
        label = f"{run.label}.{run.number}"
        BEGUN[label] += 1
        if not (await self._call(agent, label, program)).startswith("refused"):
            DONE[label] += 1


# -- programs


def with_desk(chance: random.Random, roots: list[Root]) -> list[Root]:
    """The same, with some messages to the desk: from the client, and from turns on their way."""
    asking = [root._replace(program=_asking(chance, root.program, called=root.how in ONCE)) for root in roots]
    for number in range(chance.randrange(1, 4)):
        root = Root(f"d{number}", DESK, _work(chance), chance.choice(["call", "publish"]))
        asking.insert(chance.randrange(len(asking) + 1), root)
    return asking


def _asking(chance: random.Random, program: list[Op], *, called: bool = True) -> list[Op]:
    if called and stumbles(program):
        return program  # perhaps it fails for good, and nobody can tell how far it came
    found = _perhaps_to_desk(chance)
    for name, *rest in program:
        if name == "gather":
            rest = [[[agent, _asking(chance, work)] for agent, work in rest[0]]]
        elif name in ("publish", NEWS, "call", "hurry", "later"):
            rest[1] = _asking(chance, rest[1], called=name in ("call", "hurry"))
        found += [[name, *rest], *([] if name in ("defer", "raise") else _perhaps_to_desk(chance))]
    return found


def _perhaps_to_desk(chance: random.Random) -> list[Op]:
    if chance.random() < 0.75:
        return []
    return [[chance.choice([ASK, "publish"]), DESK, _work(chance)]]


def _work(chance: random.Random) -> list[Op]:
    """For the desk itself."""
    ops: list[Op] = []
    for _ in range(chance.choice([0, 1, 1, 2])):
        pick = chance.random()
        if pick < 0.5:
            agent = chance.choice(AGENTS)
            onward = [["publish", chance.choice([other for other in AGENTS if other != agent]), []]]
            ops.append(["publish", agent, onward if chance.random() < 0.3 else []])
        elif pick < 0.8:
            ops.append(["call", ALONE, []])
        else:
            ops.append(["sleep", chance.choice([0.0, 0.002, 0.05, 0.6])])
    if chance.random() < 0.05:
        ops.append(["raise"])
    return ops
