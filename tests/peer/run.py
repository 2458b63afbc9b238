"""Run the tests that AutoGen publishes for its runtime against ours, unchanged: `make peer`.

    python -m tests.peer.run [--runtime local|redis|all|reference] [--suite core|agentchat|all] [for pytest]

Ends with one table, and with status 1 when a test failed or fewer ran than expected. With pytest arguments
(`-k`, `-x`, …) the numbers are shown but not judged. `--runtime reference` runs AutoGen's own class.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peer import workshop
from tests.peer.plan import RUNTIMES, SUITES, VERSION, Runtime, Suite
from tests.support.servers import Server, available_kinds

PER_TEST = 60  # seconds
PER_SUITE = 900  # seconds


@dataclass(frozen=True)
class Result:
    runtime: Runtime
    suite: Suite
    seconds: float
    status: int
    counts: Mapping[str, int]

    @property
    def passed(self) -> int:
        return self.counts.get("passed", 0)

    @property
    def failed(self) -> int:
        return self.counts.get("failed", 0) + self.counts.get("error", 0)

    @property
    def complete(self) -> bool:
        return self.passed == self.runtime.expected(self.suite) and self.failed == 0

    def row(self, whole: bool) -> Sequence[str]:
        expected = str(self.runtime.expected(self.suite)) if whole else "-"
        left_out = str(self.suite.tests - self.runtime.expected(self.suite))
        verdict = "ok" if self.status == 0 and (self.complete or not whole) else "FAILED"
        numbers = (self.passed, expected, self.failed, left_out, self.counts.get("instances", 0))
        return (self.runtime.name, self.suite.name, *map(str, numbers), f"{self.seconds:.0f} s", verdict)


def run_suite(python: Path, runtime: Runtime, suite: Suite, extra: Sequence[str], server: str | None) -> Result:
    """Run one suite against one runtime in a process of its own."""
    print(
        f"\n=== {suite.archive} {VERSION} on {runtime.name} ({runtime.replacement or 'its own class'})",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="sb-peer-") as folder:
        report = Path(folder) / "report.json"
        started = time.monotonic()
        status = _pytest(python, runtime, suite, extra, _environment(runtime, report, server))
        seconds = time.monotonic() - started
        counts: dict[str, int] = json.loads(report.read_text()) if report.exists() else {}
    if not counts.get("instances") and not extra:
        print(f"peer: no {runtime.name} runtime was ever made; the exchange did not work", flush=True)
        status = status or 1
    return Result(runtime, suite, seconds, status, counts)


def _environment(runtime: Runtime, report: Path, server: str | None) -> dict[str, str]:
    checkout = workshop.CHECKOUT
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))},
        "OPENAI_API_KEY": "not-used",
        "PEER_REPLACEMENT": runtime.replacement or "",
        "PEER_REPORT": str(report),
        "PEER_REDIS_URL": server or "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "tests" / "peer" / "stand_ins")]),
    }


def _pytest(python: Path, runtime: Runtime, suite: Suite, extra: Sequence[str], environment: Mapping[str, str]) -> int:
    command = [str(python), "-P", "-m", "pytest", "-p", "tests.peer.plugin", "-p", "no:cacheprovider", "-q"]
    command += ["-W", "ignore", "--tb=short", f"--timeout={PER_TEST}", "-o", "asyncio_mode=strict"]
    command += [f"--deselect=tests/{test}" for test in runtime.exceptions.get(suite.name, {})]
    command += [f"tests/{name}" for name in suite.files]
    try:
        return subprocess.run(
            [*command, *extra],
            cwd=workshop.unpacked(suite),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            timeout=PER_SUITE,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"peer: not finished after {PER_SUITE} s", flush=True)
        return 1


def print_table(results: Sequence[Result], whole: bool) -> None:
    """The one table that says what was reached, then what was left out."""
    head = ("runtime", "suite", "passed", "expected", "failed", "left out", "made", "time", "")
    rows = [head, *(result.row(whole) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    print(f"\nAutoGen {VERSION}'s own tests")
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print_exceptions(results)


def print_exceptions(results: Sequence[Result]) -> None:
    """Each test that was left out, under the reason it shares with others."""
    by_reason: dict[str, set[str]] = {}
    for result in results:
        for test, reason in result.runtime.exceptions.get(result.suite.name, {}).items():
            by_reason.setdefault(reason, set()).add(f"{result.suite.name} {test}")
    for reason, tests in by_reason.items():
        print(f"left out: {reason}")
        for test in sorted(tests):
            print(f"  {test}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", choices=[*(runtime.name for runtime in RUNTIMES), "all"], default="all")
    parser.add_argument("--suite", choices=[*(suite.name for suite in SUITES), "all"], default="all")
    options, extra = parser.parse_known_args()
    everything = [runtime for runtime in RUNTIMES if runtime.replacement]
    runtimes = everything if options.runtime == "all" else [r for r in RUNTIMES if r.name == options.runtime]
    suites = [suite for suite in SUITES if options.suite in (suite.name, "all")]

    python = workshop.prepare()
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        needs_server = any(runtime.needs_server for runtime in runtimes)
        server = stack.enter_context(Server(available_kinds()[0])).url if needs_server else None
        for runtime in runtimes:
            results += [run_suite(python, runtime, suite, extra, server) for suite in suites]

    whole = not extra
    print_table(results, whole)
    passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
    print(f"\npeer: {passed} passed, {failed} failed")
    good = all(result.status == 0 and (result.complete or not whole) for result in results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
