"""What the agents of the audit say to each other."""

from __future__ import annotations

from pydantic import BaseModel

from examples.audit.measure import FileReport


class File(BaseModel):
    """Event, one per file: measure it."""

    package: str
    number: int
    path: str


class FileMeasured(BaseModel):
    """Analyser to report, a call: this is what the file measures."""

    package: str
    number: int
    report: FileReport
    worker: int
    """Id of the process that measured it."""
    analyser_count: int
    """How many files this package's analyser has measured in its life, this one included."""


class Counted(BaseModel):
    """Answer to FileMeasured: how often this file has been counted now."""

    times: int


class ProgressRequest(BaseModel):
    """To the report: how far is it?"""


class Progress(BaseModel):
    """How far it is: files counted, by worker process, and per package the count and the latest worker."""

    files: int
    by_worker: dict[int, int]
    by_package: dict[str, tuple[int, int]]


class ReportRequest(BaseModel):
    """To the report: everything that was counted."""


class RankingRequest(BaseModel):
    """To the summary: which packages are the most complex?"""

    top: int


class RankedPackage(BaseModel):
    """One line of the ranking."""

    package: str
    files: int
    lines: int
    functions: int
    complexity: int
    highest_complexity: int
    longest_function: str
    longest_function_lines: int


class Ranking(BaseModel):
    """The most complex packages, the worst first, and the sums over all of them."""

    packages: list[RankedPackage]
    total: RankedPackage
