"""What one file measures."""

from __future__ import annotations

import pytest

from examples.audit.measure import measure

pytestmark = pytest.mark.unit

SOURCE = b"""
import os, sys
from . import near
from ..far.away import thing
import os.path

x = 1 if os else 2


class Ship:
    @property
    def name(self):
        return "ship"

    async def sail(self, seas):
        for sea in seas:
            if sea and sea.calm or sea.small:
                await sea
            elif sea.deep:
                continue
        try:
            return [s for s in seas if s]
        except ValueError:
            pass
        except OSError:
            def nested(a):
                while a:
                    a -= 1
"""


def test_lines_functions_and_the_longest() -> None:
    report = measure(SOURCE, "ship.py")
    assert report.path == "ship.py"
    assert report.lines == 28
    assert report.functions == 3
    assert (report.longest_function, report.longest_function_lines) == ("Ship.sail", 14)
    assert report.error == ""


def test_a_branch_counts_for_the_innermost_function() -> None:
    # name 1; sail 1 + for, if, and, or, elif, comprehension and its condition, two handlers; nested 1 + while
    report = measure(SOURCE, "ship.py")
    assert report.complexity == 1 + 10 + 2
    assert report.highest_complexity == 10


def test_code_outside_functions_has_no_complexity() -> None:
    assert measure(b"if a and b:\n    pass\n", "m.py").complexity == 0


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("pass", 1),
        ("return 1 if a else 2", 2),
        ("return a or b or c", 3),
        ("async for x in y: pass", 2),
        ("match a:\n        case 1: pass\n        case 2: pass", 3),
        ("return lambda: a and b", 2),
        ("with a: assert b", 1),
        ("return {x: y for x in a for y in b if x if y}", 5),
    ],
)
def test_what_counts_as_a_branch(body: str, complexity: int) -> None:
    assert measure(f"async def f():\n    {body}\n".encode(), "f.py").complexity == complexity


def test_imports_are_sorted_and_named_once() -> None:
    assert measure(SOURCE, "ship.py").imports == [".", "..far.away", "os", "os.path", "sys"]


@pytest.mark.parametrize(("source", "lines"), [(b"", 0), (b"x", 1), (b"x\n", 1), (b"x\ny", 2)])
def test_lines_with_and_without_an_end(source: bytes, lines: int) -> None:
    assert measure(source, "x.py").lines == lines


@pytest.mark.parametrize(
    "source",
    [
        b"def f(:\n",
        b"# coding: no-such-encoding\nx = 1\n",
        b"# coding: utf-8\nx = '\xff'\n",
        b"x = 1\0\n",
        b"(" * 500 + b")" * 500,
    ],
)
def test_a_file_that_does_not_parse_is_measured_with_its_error(source: bytes) -> None:
    report = measure(source, "broken.py")
    assert report.error.split(":")[0] in {"SyntaxError", "ValueError", "RecursionError", "MemoryError"}
    assert report.lines == source.count(b"\n") + (not source.endswith(b"\n"))
    assert (report.functions, report.complexity, report.imports) == (0, 0, [])


def test_a_declared_encoding_is_honoured() -> None:
    assert measure("# coding: latin-1\nx = 'é'\n".encode("latin-1"), "l.py").error == ""


def test_doubtful_escapes_are_quiet(recwarn: pytest.WarningsRecorder) -> None:
    assert measure(b"x = '\\d'\n", "d.py").error == ""
    assert not recwarn.list


def test_deep_nesting_does_not_end_the_walk() -> None:
    # nested ifs reach the parser's own limit; long chains of operators do not
    assert measure(b"def f():\n    return " + b"+".join([b"a"] * 500) + b"\n", "deep.py").functions == 1
