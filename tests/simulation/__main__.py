"""Run the simulation: `python -m tests.simulation --help`."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable

from tests.simulation.campaign import HISTORIES, Result, keep, kept_seeds, run_seeds, store_of
from tests.simulation.mutations import MUTATIONS, sources
from tests.support.servers import Kind, available_kinds


def main() -> int:
    """The command."""
    arguments = _arguments()
    kinds: list[Kind] = available_kinds() if arguments.server == "both" else [arguments.server]
    base = arguments.seed if arguments.seed is not None else int(time.time()) * 1000
    failed = False
    for kind in kinds:
        result = _run(kind, arguments, base)
        failed = failed or bool(result.failed)
        _tell(kind, result, arguments.mutant, desk=arguments.desk)
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.simulation", description="The production worker on a seeded scheduler."
    )
    parser.add_argument("--server", choices=["redis", "valkey", "both"], default="both")
    parser.add_argument("--seconds", type=float, help="how long, for each server (default 30, without --schedules)")
    parser.add_argument("--schedules", type=int, help="how many schedules, for each server")
    parser.add_argument("--no-limits", action="store_true", help="let no call be given up, or have a deadline")
    parser.add_argument(
        "--desk", action="store_true", help="in some, let there be an agent that is bound to its process"
    )
    parser.add_argument("--seed", type=int, help="the first seed (default: from the time)")
    parser.add_argument("--mutant", choices=sorted(MUTATIONS), help="break one check of one script: this must fail")
    return parser.parse_args()


def _run(kind: Kind, arguments: argparse.Namespace, base: int) -> Result:
    seconds = arguments.seconds or (30.0 if arguments.schedules is None else float("inf"))
    first = [] if arguments.mutant or arguments.seed is not None else kept_seeds()
    fresh = range(base, base + arguments.schedules) if arguments.schedules else itertools.count(base)
    print(f"{kind}: {len(first)} kept seeds, then from seed {base} on", flush=True)
    seeds: Iterable[int] = itertools.chain(first, fresh)
    mutated = sources(arguments.mutant) if arguments.mutant else None
    with store_of(kind, mutated) as store:
        limits, failures = not arguments.no_limits, 1 if mutated else 5
        desk = arguments.desk
        return run_seeds(store, seeds, seconds=seconds, failures=failures, limits=limits, desk=desk)


def _tell(kind: Kind, result: Result, mutant: str | None, *, desk: bool) -> None:
    faults = ", ".join(f"{count} {fault}" for fault, count in sorted(result.faults.items()))
    print(f"{kind}: {result.schedules} schedules in {result.seconds:.0f} s, {result.per_minute:.0f} a minute; {faults}")
    for seed, problems in result.failed.items():
        print(f"{kind}: seed {seed} failed, its history is in {HISTORIES}/{seed}.txt:")
        print("\n".join(f"    {problem[:300]}" for problem in problems[:8]))
        print(f"    again: python -m tests.simulation --server {kind} --schedules 1 --seed {seed}{' --desk' * desk}")
        if mutant is None:
            print(f"    kept as {keep(seed, problems)}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
