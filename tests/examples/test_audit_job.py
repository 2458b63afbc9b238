"""The whole audit, as a user starts it: in one process, across workers with one killed, interrupted."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from examples.audit import __main__ as command
from examples.audit.measure import FileReport
from examples.audit.plain import measure_all
from examples.audit.tree import SourceFile, standard_library

pytestmark = pytest.mark.evaluation

PROJECT = Path(__file__).parents[2]
RIGHT = "every file was counted exactly once: {0} of {0}, and every sum equals the plain computation's"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """48 files in 6 packages, large enough that a worker can be killed on the way; one does not parse."""
    root = tmp_path / "tree"
    for package in range(6):
        folder = root / f"package{package}"
        folder.mkdir(parents=True)
        for number in range(8):
            shutil.copy(standard_library() / "argparse.py", folder / f"module{number}.py")
    (root / "package3" / "module5.py").write_text("def broken(:\n")
    return root


def audit(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.audit", *arguments],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        printed, _ = process.communicate(timeout=110)
    finally:
        process.kill()
    return process.returncode, printed


def worker_ids(printed: str) -> list[int]:
    found = re.search(r"worker processes are ready: ([\d, ]+)", printed)
    assert found, printed
    return [int(pid) for pid in found[1].split(",")]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_process_counts_right_and_prints_plain_text(tree: Path) -> None:
    code, printed = finished(audit("--local", "--path", str(tree)))
    assert code == 0, printed
    assert RIGHT.format(48) in printed
    assert "\x1b" not in printed
    assert "\r" not in printed


def test_a_wrong_count_is_named_and_ends_with_1(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def miscounted(files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, FileReport]]:
        for file, report in measure_all(files):
            yield file, report.model_copy(update={"lines": report.lines + (file.package == "package2")})

    monkeypatch.setattr(command, "measure_all", miscounted)
    assert command.main(["--local", "--path", str(tree)]) == 1
    assert "package package2: lines is" in capsys.readouterr().out


@pytest.mark.timeout(120)
def test_a_killed_worker_loses_and_doubles_nothing(tree: Path) -> None:
    code, printed = finished(audit("--path", str(tree), "--workers", "3"))
    assert code == 0, printed
    assert RIGHT.format(48) in printed
    killed = re.search(r"killed worker (\d+) \(SIGKILL\)", printed)
    assert killed, printed
    assert int(killed[1]) in worker_ids(printed)
    assert re.search(r"recovery: \d", printed), printed
    assert not any(is_alive(pid) for pid in worker_ids(printed))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_behind(tree: Path, number: signal.Signals) -> None:
    process = audit("--path", str(tree), "--workers", "2", "--no-kill")
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if "processes are ready" in line:
            break
    pids = worker_ids(printed)

    process.send_signal(number)
    start = time.monotonic()
    code, rest = finished(process)

    assert code == 130, printed + rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert time.monotonic() - start < 30
    assert not any(is_alive(pid) for pid in pids)


def test_arguments_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--workers", "0"], ["--path", "/no/such/folder"]):
        with pytest.raises(SystemExit) as caught:
            command.main(arguments)
        assert caught.value.code == 2
    assert "is not a folder" in capsys.readouterr().err
