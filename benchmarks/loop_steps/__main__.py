"""Measure one step of an agent's loop, ours beside that of other frameworks, in interleaved rounds of one run."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

from rich.console import Console

from benchmarks.loop_steps.ours import DURABLE, LOCAL, durable, local
from benchmarks.loop_steps.peers import PEERS, Run
from benchmarks.loop_steps.report import ALONE, IN_FLIGHT, Row, markdown, rows, table
from benchmarks.machine import describe
from benchmarks.samples import Samples
from benchmarks.servers import Kind, binary

RESULTS = Path(__file__).parent.parent / "results" / "loop_steps.json"
WIDTH = 100
GATES = {(ALONE, LOCAL): 0.25, **{(IN_FLIGHT, DURABLE[kind]): 1.0 for kind in DURABLE}}

progress = Console(stderr=True, highlight=False)


async def measure(rounds: int, runs: int, steps: int) -> Samples:
    """Microseconds a step of each contender, so many rounds."""
    samples = Samples()
    async with AsyncExitStack() as stack:
        peers = {name: make(steps) for name, make in PEERS.items()}
        alone = {LOCAL: await stack.enter_async_context(local(steps)), **peers}
        kinds: list[Kind] = [kind for kind in DURABLE if binary(kind)]
        ours = {DURABLE[kind]: await stack.enter_async_context(durable(kind, steps)) for kind in kinds}
        for run in (*alone.values(), *ours.values()):
            await run()  # what is made once is made now
        gc.collect()
        gc.freeze()  # what the others have loaded must not weigh on one
        for number in range(1, rounds + 1):
            for name, run in alone.items():
                samples.add(ALONE, name, await _one_by_one(run, runs) / steps)
            for name, run in {**ours, **alone}.items():
                samples.add(IN_FLIGHT, name, await _at_once(run) / steps)
            progress.print(f"round {number} of {rounds}", style="dim")
    return samples


async def _one_by_one(run: Run, runs: int) -> float:
    gc.collect()
    start = perf_counter()
    for _ in range(runs):
        await run()
    return (perf_counter() - start) / runs * 1e6


async def _at_once(run: Run) -> float:
    gc.collect()
    start = perf_counter()
    await asyncio.gather(*(run() for _ in range(WIDTH)))
    return (perf_counter() - start) / WIDTH * 1e6


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop_steps", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="the figures are medians (default 9)")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="runs of one sample (default 10)")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="steps of one run (default 10)")
    parser.add_argument("--gate", action="store_true", help="exit with 1 when a gate is missed")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="save it all")
    parser.add_argument("--markdown", action="store_true", help="print the table of the README too")
    return parser.parse_args()


def show(found: list[Row], options: argparse.Namespace) -> int:
    """Print; give the exit code."""
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    if options.markdown:
        print(markdown(found))
    missed = [row for row in found if row.ok is False]
    for row in missed:
        progress.print(
            f"gate missed: {row.name}, {row.how}: {row.of_cheapest:.2f}× instead of {row.gate:g}×", style="red"
        )
    return 1 if missed and options.gate else 0


def main() -> int:
    options = arguments()
    samples = asyncio.run(measure(options.rounds, options.runs, options.steps))
    settings = {"rounds": options.rounds, "runs": options.runs, "steps": options.steps, "width": WIDTH}
    document = {"machine": describe(), "settings": settings, "unit": "µs a step", "samples": samples.by_measure}
    options.json.parent.mkdir(exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    return show(rows(samples.by_measure, GATES), options)


if __name__ == "__main__":
    sys.exit(main())
