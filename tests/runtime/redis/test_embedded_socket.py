"""Where the socket of the embedded server lies."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from stagebell.errors import ServerUnavailable
from stagebell.runtime.redis.embedded_socket import SOCKET_PATH_BYTES, socket_path

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(sys.platform == "win32", reason="the embedded server needs unix sockets"),
]


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """The temporary folder of this test, with a path short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="sb-", dir="/tmp") as place:
        monkeypatch.setattr("tempfile.tempdir", place)
        yield Path(place)


@pytest.fixture
def private(temporary: Path) -> Path:
    return temporary / f"stagebell-{os.geteuid()}"


def test_in_a_private_folder_of_the_temporary_folder(private: Path, tmp_path: Path) -> None:
    assert Path(socket_path(tmp_path)).parent == private
    assert stat.S_IMODE(private.lstat().st_mode) == 0o700


def test_named_after_the_folder_and_not_its_path(private: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    before = socket_path(tmp_path / "a")
    assert socket_path(tmp_path / "link") == before != socket_path(tmp_path / "b")
    (tmp_path / "a").rename(tmp_path / "moved")
    assert socket_path(tmp_path / "moved") == before


def test_a_folder_open_to_others_is_not_used(private: Path, tmp_path: Path) -> None:
    private.mkdir()
    private.chmod(0o755)
    assert private not in Path(socket_path(tmp_path)).parents


def test_a_link_put_there_by_somebody_is_not_used(private: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    private.symlink_to(tmp_path / "target")
    assert private not in Path(socket_path(tmp_path)).parents


def test_a_path_too_long_for_a_socket_is_not_used(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert len(socket_path(tmp_path)) <= SOCKET_PATH_BYTES


def test_no_place_at_all_is_an_error_with_each_reason(
    tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private.mkdir()
    private.chmod(0o755)
    monkeypatch.setattr("stagebell.runtime.redis.embedded_socket._candidates", lambda: [private, Path("/" + "x" * 200)])
    with pytest.raises(ServerUnavailable, match=r"open to others \(chmod 700 it\); .*too long a path.*TMPDIR"):
        socket_path(tmp_path)
