"""What a seed decides at first."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.desk import with_desk
from tests.simulation.network import Weather
from tests.simulation.programs import Root, make_roots, with_records


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
    room: int
    """So many messages an inbox takes from outside."""
    credit: int = 256
    """So many messages of a partition are in memory."""
    roots: list[Root] = field(default_factory=list[Root])
    desk: bool = False
    """There is an agent that is bound to its process."""


# By what a seed leaves when divided by 30: so seeds that failed before there was this keep their programs.
_WITH_DESK = frozenset({1, 4, 5, 10, 13, 15, 16, 28})
_WITH_UPGRADE = frozenset({2, 5, 9, 10, 11, 13, 22, 29})


def is_upgraded(seed: int) -> bool:
    """True when workers are replaced by those of the next program."""
    return seed % 30 in _WITH_UPGRADE


def add_desk(plan: Plan, seed: int) -> None:
    """Draw messages to an agent that is bound to its process; not where the server loses writes, which it does not."""
    if seed % 30 in _WITH_DESK and not plan.rollback:
        plan.desk = True
        plan.roots = with_desk(random.Random(f"{seed}/desk"), plan.roots)


def make_plan(chance: random.Random, *, limits: bool, records: bool) -> Plan:
    """Draw a plan; `limits`: in some of them calls are given up, and have deadlines; `records`: turns keep values."""
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
        room=pick([10_000, 10_000, 2, 1]),
    )
    timers, limited = chance.random() < 0.4, chance.random() < 0.4
    limits = limits and limited
    # Not both in all: so seeds that failed once keep their programs.
    puts_off = not limits or (plan.partitions > 1 and plan.weather.stalled_for == 1.0)
    plan.roots = make_roots(chance, news=plan.news, timers=timers, limits=limits, puts_off=puts_off, lossy=rollback)
    plan.credit = random.Random(f"credit of {plan.roots!r}").choice([256, 256, 256, 4, 2])
    if records:
        plan.roots = with_records(plan.roots)
    return plan
