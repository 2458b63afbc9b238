"""Every loop in what runs agents and tools has a bound, and it is written down here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house import sources

pytestmark = pytest.mark.unit

LOOPS = {
    "agents/stores/sqlite.py _keep_a_log": "ten seconds",
    # turns over what is given, and takes a part of it away each time
    "agents/endings.py begin_next": "the tasks in line",
    "agents/stores/json_files.py _load": "saves of others between two looks at the folder",
    "tools/approvals.py _remember": "the decisions that are remembered",
    "tools/docstrings.py parse_docstring": "the lines of a docstring",
    "tools/docstrings.py _read_section": "the lines of a docstring",
    "tools/rates.py take": "the calls that are remembered",
    "tools/toolset.py close": "the workbenches",
    # steps of a run, whose limits bound it; an agent without any is refused
    "agents/loop_actor.py _do": "the limits of the run",
    "agents/runs.py events": "the end of the run",
    "agents/runs.py step": "the end of a step",
    "agents/tokens.py __aiter__": "the end of the run",
    # what is awaited has a bound of its own, and a cancellation ends it
    "agents/contained.py _steps": "the steps of a coroutine",
    "tools/running.py _drive": "the time limit of the tool, and of its run",
    "tools/running.py _wind_up": "the grace of a tool that was cancelled",
    "tools/running.py _steps": "the steps of a coroutine that nobody waits for any more",
    # attempts, counted or timed
    "tools/attempts.py run": "`retries`",
    "tools/attempts.py judge": "`patience`",
    "tools/ledger.py open": "the attempts of a turn, of which a message has four at most",
}


def loops() -> Iterator[str]:
    """Each `while` of the agents and the tools, by its file and function."""
    for path in sources.modules():
        where = path.relative_to(sources.PACKAGE).as_posix()
        if where.startswith(("agents/", "tools/")):
            yield from (f"{where} {name}" for name in _in(sources.parse(path), ""))


def _in(node: ast.AST, function: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.While):
            yield inside
        yield from _in(child, inside)


def test_every_loop_has_a_bound_that_is_known() -> None:
    assert sorted(set(loops())) == sorted(LOOPS)
