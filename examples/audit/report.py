"""The report's state. Pure; small, since it is stored after every message: about 30 kB for 1,800 files."""

from __future__ import annotations

from pydantic import BaseModel

from examples.audit.messages import FileMeasured, Progress


class PackageReport(BaseModel):
    """Sums over one package; `times[n]` says how often file number n was counted and should be 1."""

    times: list[int] = []
    lines: int = 0
    functions: int = 0
    complexity: int = 0
    highest_complexity: int = 0
    longest_function: str = ""
    longest_function_lines: int = 0
    imports: int = 0
    errors: int = 0
    analyser_count: int = 0
    worker: int = 0
    """The process that measured the latest file."""

    def add(self, measured: FileMeasured) -> int:
        """Counts a file and returns how often it has been counted now; a second time is counted as well."""
        report = measured.report
        self.times.extend([0] * (measured.number + 1 - len(self.times)))
        self.times[measured.number] += 1
        self.lines += report.lines
        self.functions += report.functions
        self.complexity += report.complexity
        self.highest_complexity = max(self.highest_complexity, report.highest_complexity)
        if report.longest_function_lines > self.longest_function_lines:
            self.longest_function = report.longest_function
            self.longest_function_lines = report.longest_function_lines
        self.imports += len(report.imports)
        self.errors += report.error != ""
        self.analyser_count = measured.analyser_count
        self.worker = measured.worker
        return self.times[measured.number]


class Report(BaseModel):
    """What was counted so far, per package and per worker process."""

    packages: dict[str, PackageReport] = {}
    by_worker: dict[int, int] = {}

    def add(self, measured: FileMeasured) -> int:
        """Counts a file and returns how often it has been counted now."""
        self.by_worker[measured.worker] = self.by_worker.get(measured.worker, 0) + 1
        return self.packages.setdefault(measured.package, PackageReport()).add(measured)

    def progress(self) -> Progress:
        """Returns how far it is."""
        packages = self.packages.items()
        return Progress(
            files=sum(self.by_worker.values()),
            by_worker=self.by_worker,
            by_package={name: (sum(package.times), package.worker) for name, package in packages},
        )
