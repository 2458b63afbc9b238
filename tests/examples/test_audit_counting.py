"""The tree, the report's state, the ranking, the check: everything of the audit that decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.audit.check import differences
from examples.audit.measure import FileReport
from examples.audit.messages import FileMeasured, Progress
from examples.audit.plain import measure_all
from examples.audit.ranking import ranking
from examples.audit.recovery import Recovery, most_loaded
from examples.audit.report import Report
from examples.audit.tree import SourceFile, source_files, standard_library

pytestmark = pytest.mark.unit

FILES = [SourceFile(package, n, Path(f"/tree/{package}/{n}.py")) for package in ("a", "b") for n in range(3)]
PLAIN = {
    file: FileReport(
        path=str(file.path),
        lines=10 + file.number,
        functions=1,
        longest_function=f"f{file.number}",
        longest_function_lines=5 + file.number,
        complexity=3,
        highest_complexity=3,
        imports=["os"],
    )
    for file in FILES
}


def measured(file: SourceFile, worker: int = 7, count: int | None = None) -> FileMeasured:
    return FileMeasured(
        package=file.package,
        number=file.number,
        report=PLAIN[file],
        worker=worker,
        analyser_count=file.number + 1 if count is None else count,
    )


def counted(files: list[SourceFile]) -> Report:
    report = Report()
    for file in files:
        report.add(measured(file))
    return report


def check(report: Report) -> list[str]:
    return differences(PLAIN, report, ranking(report, 5))


def test_files_are_numbered_within_their_package(tmp_path: Path) -> None:
    for name in ("one.py", "sub/two.py", "sub/three.py", "sub/note.txt", "sub/deep er/four.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for left_out in ("site-packages/x.py", "sub/__pycache__/y.py"):
        (tmp_path / left_out).parent.mkdir()
        (tmp_path / left_out).write_text("")

    found = [(file.package, file.number, file.path.name) for file in source_files(tmp_path)]

    assert found == [
        ("sub", 0, "three.py"),
        ("sub", 1, "two.py"),
        ("sub.deep_er", 0, "four.py"),
        ("top", 0, "one.py"),
    ]


def test_the_standard_library_is_large_enough_for_the_job() -> None:
    assert len(source_files(standard_library())) >= 700


def test_every_file_once_is_right() -> None:
    assert check(counted(FILES)) == []


def test_a_lost_file_is_named() -> None:
    wrong = check(counted(FILES[:-1]))
    assert "/tree/b/2.py: counted 0 times instead of once" in wrong
    assert "the workers measured 5 files together, the tree has 6" in wrong


def test_a_file_counted_twice_is_named() -> None:
    report = counted(FILES)
    assert report.add(measured(FILES[1])) == 2
    assert "/tree/a/1.py: counted 2 times instead of once" in check(report)


def test_a_wrong_sum_names_its_package() -> None:
    report = counted(FILES)
    report.packages["b"].lines += 1
    assert check(report) == ["package b: lines is 34, the plain computation says 33"]


def test_an_analyser_that_forgot_its_count_is_noticed() -> None:
    report = counted(FILES[:-1])
    report.add(measured(FILES[-1], count=1))
    assert check(report) == ["package b: analyser_count is 1, the plain computation says 3"]


def test_what_is_not_in_the_tree_is_noticed() -> None:
    report = counted(FILES)
    report.packages["c"] = report.packages["a"].model_copy()
    report.packages["a"].times.append(1)
    wrong = check(report)
    assert "package c: counted, but it is not in the tree" in wrong
    assert "package a: file number 3 was counted, but it is not in the tree" in wrong


def test_the_ranking_puts_the_most_complex_first() -> None:
    report = counted(FILES)
    report.packages["b"].complexity += 1
    found = ranking(report, 1)
    assert [package.package for package in found.packages] == ["b"]
    assert (found.total.files, found.total.lines, found.total.complexity) == (6, 66, 19)
    assert (found.total.longest_function, found.total.longest_function_lines) == ("f2", 7)


def test_a_report_survives_its_stored_form() -> None:
    report = counted(FILES)
    assert Report.model_validate(json.loads(json.dumps(report.model_dump(mode="json")))) == report


def test_the_state_stays_small_for_the_largest_tree() -> None:
    report = Report()
    empty = FileReport(path="", lines=1)
    for file in source_files(standard_library()):
        report.add(
            FileMeasured(package=file.package, number=file.number, report=empty, worker=1234567, analyser_count=1)
        )
    assert len(json.dumps(report.model_dump(mode="json"))) < 64 * 1024


def test_the_plain_computation_measures_every_file(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("def f(): pass\n")
    (tmp_path / "bad.py").write_text("def f(\n")
    found = {file.path.name: report for file, report in measure_all(source_files(tmp_path))}
    assert found["good.py"].functions == 1
    assert found["bad.py"].error.startswith("SyntaxError")


EXPECTED = {"a": 10, "b": 10, "c": 2}


def progress(**packages: tuple[int, int]) -> Progress:
    return Progress(files=sum(files for files, _ in packages.values()), by_worker={}, by_package=packages)


def test_the_worker_with_the_most_left_is_chosen() -> None:
    seen = progress(a=(1, 7), b=(8, 8), c=(2, 8))
    assert most_loaded(seen, EXPECTED, [7, 8]) == 7
    assert most_loaded(seen, EXPECTED, [8, 9]) == 8
    assert most_loaded(seen, EXPECTED, [9]) == 9


def test_recovery_is_seen_package_by_package() -> None:
    recovery = Recovery(7, progress(a=(1, 7), b=(2, 7), c=(2, 7)), EXPECTED, now=100.0)
    assert recovery.packages == 2  # c is finished

    recovery.see(progress(a=(2, 7), b=(2, 7), c=(2, 7)), now=101.0)  # its last file, on its way when it died
    assert recovery.first is None
    recovery.see(progress(a=(3, 8), b=(2, 7), c=(2, 7)), now=103.0)
    assert (recovery.first, recovery.all) == (3.0, None)
    recovery.see(progress(a=(4, 8), b=(3, 9), c=(2, 7)), now=103.5)
    assert (recovery.first, recovery.all) == (3.0, 3.5)


def test_a_worker_busy_with_nothing_needs_no_recovery() -> None:
    recovery = Recovery(7, progress(a=(1, 8)), EXPECTED, now=100.0)
    recovery.see(progress(a=(2, 8)), now=101.0)
    assert (recovery.packages, recovery.first) == (0, None)
