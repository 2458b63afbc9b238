"""Many schedules, one after the other, and what to do with those that fail."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.schedule import Outcome, run_schedule
from tests.simulation.store import Store
from tests.support.servers import Kind, Server

SEEDS = Path(__file__).parent / "seeds"
HISTORIES = Path(__file__).resolve().parents[2] / "build" / "simulation"
# Large hashes would be read in an order that each server draws anew.
_ARGUMENTS = ("--hash-max-listpack-value", "100000", "--hash-max-listpack-entries", "4096")


@contextmanager
def store_of(kind: Kind, mutated: Mapping[str, str] | None = None) -> Iterator[Store]:
    """A server of its own for the simulation; `mutated`: other sources for some scripts, by name."""
    with Server(kind, unix=True, args=_ARGUMENTS) as server:
        store = Store(server.socket, mutated)
        try:
            yield store
        finally:
            store.close()


@dataclass
class Result:
    """What a campaign found."""

    schedules: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter[str])
    failed: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    @property
    def per_minute(self) -> float:
        """Schedules a minute."""
        return self.schedules / self.seconds * 60 if self.seconds else 0.0


def kept_seeds() -> list[int]:
    """Seeds that failed once; each has a file that says why."""
    return sorted(int(path.stem) for path in SEEDS.glob("*.txt"))


def run_seeds(
    store: Store,
    seeds: Iterable[int],
    *,
    seconds: float = float("inf"),
    failures: int = 5,
    limits: bool = True,
    desk: bool = True,
) -> Result:
    """Run seeds until there is no more of them, of the time, or there were so many failures."""
    gc.collect()
    gc.freeze()  # what is there now stays: each schedule collects only its own
    result, started = Result(), time.monotonic()
    for seed in seeds:
        outcome = run_schedule(store, seed, limits=limits, desk=desk)
        result.schedules += 1
        result.faults += outcome.faults
        if outcome.problems:
            result.failed[seed] = outcome.problems
            write_history(outcome)
        result.seconds = time.monotonic() - started
        if result.seconds >= seconds or len(result.failed) >= failures:
            break
    return result


def write_history(outcome: Outcome) -> Path:
    """Write down what happened in a schedule that failed."""
    HISTORIES.mkdir(parents=True, exist_ok=True)
    path = HISTORIES / f"{outcome.seed}.txt"
    path.write_text("\n".join([*outcome.problems, "", *outcome.history, ""]), "utf-8")
    return path


def keep(seed: int, problems: list[str]) -> Path:
    """Let a seed that failed run first from now on."""
    SEEDS.mkdir(exist_ok=True)
    path = SEEDS / f"{seed}.txt"
    if not path.exists():
        path.write_text("\n".join(problems[:5]) + "\n", "utf-8")
    return path
