"""From the report to the ranking. Pure."""

from __future__ import annotations

from examples.audit.messages import RankedPackage, Ranking
from examples.audit.report import PackageReport, Report


def ranking(report: Report, top: int) -> Ranking:
    """Ranks packages by their complexity.

    Args:
        report: what was counted.
        top: how many packages to name.

    Returns:
        The most complex packages, the worst first, ties by name, and a line for all packages together.
    """
    lines = [_line(name, package) for name, package in report.packages.items()]
    lines.sort(key=lambda line: (-line.complexity, line.package))
    longest = max(lines, key=lambda line: line.longest_function_lines, default=_line("", PackageReport()))
    total = RankedPackage(
        package="all packages",
        files=sum(line.files for line in lines),
        lines=sum(line.lines for line in lines),
        functions=sum(line.functions for line in lines),
        complexity=sum(line.complexity for line in lines),
        highest_complexity=max((line.highest_complexity for line in lines), default=0),
        longest_function=longest.longest_function,
        longest_function_lines=longest.longest_function_lines,
    )
    return Ranking(packages=lines[:top], total=total)


def _line(name: str, package: PackageReport) -> RankedPackage:
    return RankedPackage(
        package=name,
        files=sum(package.times),
        lines=package.lines,
        functions=package.functions,
        complexity=package.complexity,
        highest_complexity=package.highest_complexity,
        longest_function=package.longest_function,
        longest_function_lines=package.longest_function_lines,
    )
