"""Measure ours, AutoGen's runtimes and the raw floors in one run; print, save and draw the ratios."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import across_processes, in_process, memory
from benchmarks import contenders as names
from benchmarks.across_processes import Amounts
from benchmarks.machine import describe
from benchmarks.measures import MEASURES, MEMORY, TYPES
from benchmarks.plot import PLACES, picture
from benchmarks.report import document, markdown, missed, rows, table
from benchmarks.samples import Samples

RESULTS = Path(__file__).parent / "results"
IN_PROCESS = [names.LOCAL, names.AUTOGEN, names.QUEUE]
OURS_ACROSS = [names.REDIS, names.REDIS_STATE, names.VALKEY, names.VALKEY_STATE, names.REDIS_EVERYSEC]
ACROSS = [*OURS_ACROSS, names.GRPC, names.THIN, names.REDIS_PY]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a run measures. `operations` is what AutoGen's in-process runtime does in one sample."""

    rounds_in_process: int
    rounds_across: int
    operations: int
    agents: int
    slow: Amounts
    fast: Amounts


FULL = Effort(15, 5, 1_000, 100_000, Amounts(2_000, 1_000, 200), Amounts(10_000, 5_000, 500))
QUICK = Effort(5, 1, 500, 10_000, Amounts(600, 400, 100), Amounts(5_000, 2_000, 200))

console = Console(width=None if sys.stdout.isatty() else 160)
progress = Console(stderr=True, highlight=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and messages: under a minute")
    parser.add_argument("--only", choices=("in-process", "across"), help="measure one half")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of both halves (the figures are medians)")
    parser.add_argument("--gate", action="store_true", help="exit with 1 when a gate is missed")
    parser.add_argument("--baselines", action="store_true", help="measure only AutoGen and the floors")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save it all (whole runs: results/latest.json)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw (whole runs: results/latest.png)")
    parser.add_argument("--markdown", action="store_true", help="print the table of the README too")
    parser.add_argument("--saved", type=Path, metavar="FILE", help="measure nothing, show a saved file")
    return parser.parse_args()


def measure_in_process(effort: Effort, rounds: int, baselines: bool) -> Samples:
    """The rounds in one process, and one look at memory."""
    samples = Samples()
    contenders = [name for name in IN_PROCESS if not (baselines and name == names.LOCAL)]
    plan = in_process.measure(contenders, rounds=rounds, operations=effort.operations)
    for number, found in enumerate(plan, 1):
        samples.extend(found)
        progress.print(f"in one process, round {number} of {rounds}", style="dim")
    for name in contenders:
        if name in in_process.RUNTIMES:
            samples.add(MEMORY, name, memory.measure(name, effort.agents))
            progress.print(f"memory of {effort.agents:,} agents, {names.CONTENDERS[name].title}", style="dim")
    return samples


async def measure_across(effort: Effort, rounds: int, baselines: bool) -> Samples:
    """The rounds across processes, with one agent type and with ten."""
    samples = Samples()
    wanted = [name for name in ACROSS if not (baselines and name in OURS_ACROSS)]
    run = partial(across_processes.measure, rounds=rounds, slow=effort.slow, fast=effort.fast)
    for types in TYPES:
        number = 0
        async for found in run(across_processes.available(wanted), types=types):
            samples.extend(found)
            number += 1
            progress.print(f"across processes, agent types {types}, round {number} of {rounds}", style="dim")
    return samples


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One whole run, as the document to save."""
    effort = QUICK if options.quick else FULL
    samples = Samples()
    if options.only != "across":
        rounds = options.rounds or effort.rounds_in_process
        samples.extend(measure_in_process(effort, rounds, options.baselines))
    if options.only != "in-process":
        rounds = options.rounds or effort.rounds_across
        samples.extend(asyncio.run(measure_across(effort, rounds, options.baselines)))
    return document(samples, describe(), {**asdict(effort), "quick": options.quick, "rounds": options.rounds})


def show(found: dict[str, Any], options: argparse.Namespace) -> int:
    """Print, save and draw; give the exit code."""
    all_rows = rows(Samples.of(found["samples"]))
    for place in PLACES:
        if any(MEASURES[row.measure].place == place for row in all_rows):
            console.print(table(all_rows, place))
    if options.markdown:
        print(markdown(all_rows))
    whole = not (options.quick or options.only or options.baselines or options.saved)
    RESULTS.mkdir(exist_ok=True)
    if file := options.json or (RESULTS / "latest.json" if whole else None):
        file.write_text(json.dumps(found, indent=1) + "\n")
    if file := options.picture or (RESULTS / "latest.png" if whole else None):
        picture(all_rows, file, _caption(found["machine"]))
    below = missed(all_rows)
    for row in below:
        title = f"{MEASURES[row.measure].title}, {names.CONTENDERS[row.contender].title}"
        progress.print(f"gate missed: {title}: {row.ratio:.2f}× instead of {row.gate:g}×", style="red")
    return 1 if below and options.gate else 0


def _caption(machine: dict[str, Any]) -> str:
    return (
        f"{machine['cpus']} CPUs, {machine['system'].split()[0]} {machine['machine']}, {machine['python']}, "
        f"AutoGen {machine['packages']['autogen-core']}, {machine['date'][:10]}; "
        "medians of interleaved rounds"
    )


def main() -> int:
    options = arguments()
    # A terminated run must still end its servers and workers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = json.loads(options.saved.read_text()) if options.saved else measure(options)
    except KeyboardInterrupt:
        progress.print("stopped; nothing is saved")
        return 130
    return show(found, options)


if __name__ == "__main__":
    sys.exit(main())
