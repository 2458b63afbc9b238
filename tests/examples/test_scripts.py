"""Every example runs as a user runs it, and prints what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SCRIPTS = sorted((PROJECT / "examples").glob("[0-9][0-9]_*.py"))

pytestmark = pytest.mark.evaluation


def run(script: str, folder: Path, *flags: str) -> list[str]:
    """What the script prints, run in a folder of its own."""
    done = subprocess.run(
        [sys.executable, str(PROJECT / "examples" / script), *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_hello_is_answered(tmp_path: Path) -> None:
    assert run("01_hello.py", tmp_path) == [
        "Hello Ada, you are guest number 1.",
        "Hello Grace, you are guest number 2.",
    ]


def test_topics_reach_the_agents_of_both_topologies(tmp_path: Path) -> None:
    assert run("02_topics.py", tmp_path) == [
        "bar/table-1: soup",
        "branch/lisbon: fish",
        "branch/oslo: rice, tea",
        "kitchen/table-1: soup",
    ]


def test_the_team_goes_round_until_it_agrees(tmp_path: Path) -> None:
    printed = run("03_team.py", tmp_path)
    assert [line.split(":")[0] for line in printed[:-1]] == ["user", "writer", "critic", "writer", "critic"]
    assert printed[-1] == "stopped: Text 'APPROVE' mentioned"


def test_state_is_counted_on_in_the_other_runtime(tmp_path: Path) -> None:
    assert run("04_state.py", tmp_path) == [
        "LocalRuntime: 40 came, 40 so far",
        "RedisRuntime: 2 came, 42 so far",
    ]


@pytest.mark.parametrize("flags", [(), ("--redis",)], ids=["local", "redis"])
def test_a_person_agrees_to_a_refund(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert run("05_tools_with_approval.py", tmp_path, *flags) == [
        'waits for a person: {"order": "A2", "cents": 9000}',
        "Both are paid back. [500, 4500]",
    ]


@pytest.mark.parametrize("flags", [(), ("--redis",)], ids=["local", "redis"])
def test_a_typed_loop_gives_advice(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert run("06_typed_loop.py", tmp_path, *flags) == [
        "0 asked",
        "1 decided",
        "1 returned",
        "2 corrected",
        "3 decided",
        "3 finished",
        "coat=True why='It is 3 degrees.'",
    ]


@pytest.mark.parametrize("flags", [(), ("--redis",)], ids=["local", "redis"])
def test_a_refund_that_fails_is_taken_back(tmp_path: Path, flags: tuple[str, ...]) -> None:
    printed = run("07_refund_saga.py", tmp_path, *flags)
    assert printed[:2] == ["taken back: credit note of 500 cents", "taken back: goods of A1"]
    assert printed[2].startswith("failed fatal_tool_error | pay_back (fatal): the account")
    assert printed[2].endswith("| {}")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_examples_are_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= 60
