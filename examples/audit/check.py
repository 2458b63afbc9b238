"""Compares what the agents counted with the plain measures. Pure; knows nothing of how the report sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from examples.audit.measure import FileReport
from examples.audit.messages import Ranking
from examples.audit.report import PackageReport, Report
from examples.audit.tree import SourceFile

PlainMeasures = Mapping[SourceFile, FileReport]


def differences(plain: PlainMeasures, report: Report, ranking: Ranking) -> list[str]:
    """Finds every wrong count.

    Args:
        plain: the measures of every file, made without agents.
        report: what the agents counted.
        ranking: what the summary agent answered.

    Returns:
        One sentence per wrong count, naming the file or the package; empty when all is right.
    """
    wrong: list[str] = []
    for name, files in _by_package(plain).items():
        counted = report.packages.get(name, PackageReport())
        wrong.extend(_wrong_files(name, files, counted))
        wrong.extend(_wrong_sums(name, files, counted))
    expected = {file.package for file in plain}
    wrong.extend(f"package {name}: counted, but it is not in the tree" for name in report.packages.keys() - expected)
    wrong.extend(_wrong_totals(plain, report, ranking))
    return wrong


def _wrong_totals(plain: PlainMeasures, report: Report, ranking: Ranking) -> Iterator[str]:
    by_worker = sum(report.by_worker.values())
    if by_worker != len(plain):
        yield f"the workers measured {by_worker} files together, the tree has {len(plain)}"
    if ranking.total.files != len(plain):
        yield f"the ranking covers {ranking.total.files} files, the tree has {len(plain)}"
    complexity = sum(measures.complexity for measures in plain.values())
    if ranking.total.complexity != complexity:
        found = ranking.total.complexity
        yield f"the ranking's complexity is {found}, the plain computation says {complexity}"


def _by_package(plain: PlainMeasures) -> dict[str, dict[SourceFile, FileReport]]:
    packages: dict[str, dict[SourceFile, FileReport]] = {}
    for file, measures in plain.items():
        packages.setdefault(file.package, {})[file] = measures
    return packages


def _wrong_files(name: str, files: PlainMeasures, counted: PackageReport) -> Iterator[str]:
    times = dict(enumerate(counted.times))
    for file in files:
        found = times.pop(file.number, 0)
        if found != 1:
            yield f"{file.path}: counted {found} times instead of once"
    for number, found in times.items():
        if found:
            yield f"package {name}: file number {number} was counted, but it is not in the tree"


def _wrong_sums(name: str, files: PlainMeasures, counted: PackageReport) -> Iterator[str]:
    measures = list(files.values())
    expected = {
        "lines": sum(one.lines for one in measures),
        "functions": sum(one.functions for one in measures),
        "complexity": sum(one.complexity for one in measures),
        "highest_complexity": max(one.highest_complexity for one in measures),
        "longest_function_lines": max(one.longest_function_lines for one in measures),
        "imports": sum(len(one.imports) for one in measures),
        "errors": sum(one.error != "" for one in measures),
        "analyser_count": len(measures),
    }
    for field, right in expected.items():
        found = getattr(counted, field)
        if found != right:
            yield f"package {name}: {field} is {found}, the plain computation says {right}"
