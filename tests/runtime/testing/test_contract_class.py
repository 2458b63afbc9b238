"""The contract as a user runs it: in a project with pytest and pytest-asyncio, on a runtime of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import sources

pytestmark = pytest.mark.runtime

PROJECT = """
import pytest
from stagebell import LocalRuntime
from stagebell.testing.contract import Capabilities, RuntimeContract


class Wordy(LocalRuntime):
    async def send_message(self, *message, **options):
        return str(await super().send_message(*message, **options))


@pytest.mark.asyncio
class TestGood(RuntimeContract):
    async def make_runtime(self):
        return LocalRuntime()


@pytest.mark.asyncio
class TestBad(RuntimeContract):
    capabilities = Capabilities(any_object=False)

    def make_runtime(self):
        return Wordy()
"""


def test_a_good_runtime_passes_and_a_bad_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_mine.py").write_text(PROJECT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--tb=line", "test_mine.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(sources.ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    outcomes = set(re.findall(r"^(PASSED|FAILED|ERROR) test_mine.py::(\w+)::(\w+)", done.stdout, re.MULTILINE))
    good = {name for outcome, of, name in outcomes if of == "TestGood" and outcome == "PASSED"}
    bad = {name for outcome, of, name in outcomes if of == "TestBad" and outcome == "FAILED"}
    assert len(good) > 40, done.stdout[-3000:]
    assert not [each for each in outcomes if each[1] == "TestGood" and each[0] != "PASSED"]
    assert "test_a_reply_comes_back_as_it_went" in bad
    assert "test_a_call_is_answered" not in bad
    left_out = "test_a_reply_that_is_an_exception_is_a_reply"
    assert left_out in good
    assert not [each for each in outcomes if each[1:] == ("TestBad", left_out)]
