"""Run all tests: `make test`.

Two parts, since a test that kills or freezes worker processes must not share the machine with busy ones: first
everything but tests/failure, then tests/failure alone, whose tests wait most of the time; both on two processes.
Arguments go to pytest in both. The closing line adds the parts up.
"""

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from tests.support.servers import available_kinds

CHECKOUT = Path(__file__).resolve().parents[1]
NO_TESTS = 5  # pytest's exit status when a selection such as -k leaves nothing

PARTS = {
    "all but tests/failure, on two processes": [
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "--ignore",
        "tests/failure",
    ],
    "tests/failure, on two processes": ["-n", "2", "--dist", "loadgroup", "tests/failure"],
}


def servers() -> str:
    """Say which servers the tests will use."""
    kinds = available_kinds()
    missing = "" if "redis" in kinds else "; there is no redis-server on PATH, so nothing runs on Redis"
    return f"servers: {', '.join(kinds) or 'none'}{missing}"


def run_part(title: str, arguments: list[str]) -> tuple[int, Counter[str]]:
    """Run one part; return pytest's status and the counts of its report."""
    print(f"\n=== {title}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sb-test-") as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "not torture",
            f"--junit-xml={report}",
            *arguments,
        ]
        status = subprocess.run(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, check=False).returncode
        return status, read_report(report)


def read_report(report: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    if report.exists():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            for name in ("tests", "failures", "errors", "skipped"):
                counts[name] += int(suite.get(name, 0))
    return counts


def main() -> int:
    started = time.monotonic()
    print(servers())
    total: Counter[str] = Counter()
    statuses: list[int] = []
    for title, arguments in PARTS.items():
        status, counts = run_part(title, [*arguments, *sys.argv[1:]])
        statuses.append(status)
        total += counts
    failed = total["failures"] + total["errors"]
    passed = total["tests"] - failed - total["skipped"]
    print(f"\nboth parts in {time.monotonic() - started:.0f} s")
    print(f"tests: {passed} passed, {failed} failed, {total['skipped']} skipped")
    good = {0, NO_TESTS} if passed else {0}
    return 0 if set(statuses) <= good else 1


if __name__ == "__main__":
    sys.exit(main())
