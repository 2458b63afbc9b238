"""Does somebody notice each broken script? `python -m tests.simulation.mutants [NAME …]`.

Each is run until a schedule fails, or its budget is used up; of those that the simulation cannot notice, the test that
they name must fail.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.simulation.campaign import run_seeds, store_of
from tests.simulation.mutations import MUTATIONS, sources
from tests.support.servers import Kind, available_kinds

CHECKOUT = Path(__file__).resolve().parents[2]
BUDGET = 600
"""Schedules for each mutation."""


class Verdict(NamedTuple):
    """Whether a mutation was noticed, and how."""

    name: str
    noticed: bool
    how: str


def try_mutation(name: str, kind: Kind, budget: int = BUDGET, base: int = 0) -> Verdict:
    """Run one mutation."""
    if MUTATIONS[name].seen_by:
        return _try_test(name)
    with store_of(kind, sources(name)) as store:
        result = run_seeds(store, range(base, base + budget), failures=1)
    if not result.failed:
        return Verdict(name, False, f"not noticed in {result.schedules} schedules")
    problem = next(iter(result.failed.values()))[0]
    return Verdict(name, True, f"{result.schedules} schedules: {problem[:80]}")


def _try_test(name: str) -> Verdict:
    test = MUTATIONS[name].seen_by
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.simulation.mutated_scripts"]
    done = subprocess.run(
        [*command, f"tests/runtime/redis/{test}"],
        env={**os.environ, "STAGEBELL_MUTANT": name, "PYTHONPATH": str(CHECKOUT)},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 1 and " failed" in done.stdout:
        return Verdict(name, True, f"by {test}")
    return Verdict(name, False, f"{test} does not notice it: {done.stdout[-200:]}{done.stderr[-200:]}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser("python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *sorted(MUTATIONS)], help="default: all")
    parser.add_argument("--budget", type=int, default=BUDGET, help="schedules for each")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.names or MUTATIONS:
        verdict = try_mutation(name, available_kinds()[0], arguments.budget, arguments.seed)
        print(f"{'noticed' if verdict.noticed else 'MISSED '} {name:30} {verdict.how}", flush=True)
        missed += not verdict.noticed
    print(f"{missed} were missed" if missed else "all were noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
