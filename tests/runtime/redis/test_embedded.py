"""The embedded server: one for each folder, there while anybody uses it and gone when nobody does."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from redis import Redis

from stagebell.errors import ServerUnavailable
from stagebell.runtime.redis.embedded import EmbeddedServer
from stagebell.runtime.redis.server_binary import find_server
from tests.runtime.redis.embedded_users import (
    User,
    can_set,
    client_of,
    info,
    is_free,
    parent_of,
    pid_of,
    process_is_gone,
    socket_of,
    used,
    wait_until,
)
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="the embedded server needs flock"),
]

GONE_SECONDS = 3.0

Starts = Callable[[Path], User]


@pytest.fixture
def starts() -> Generator[Starts]:
    """Starts users; those still there when the test ends are killed."""
    users: list[User] = []

    def start(folder: Path) -> User:
        users.append(User(folder))
        return users[-1]

    yield start
    for user in users:
        user.process.kill()
        user.process.wait(20)


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    """A project folder, whose server has to be gone soon after the test's users."""
    place = tmp_path / ".stagebell"
    yield place
    if place.exists():
        wait_until(lambda: is_free(place / "server.lock") and is_free(place / "watcher.lock"), 15)


# Starting


async def test_starts_and_answers(folder: Path) -> None:
    server = await EmbeddedServer.acquire(folder)
    try:
        with Redis.from_url(server.url) as client:
            assert client.ping()
    finally:
        server.release()


def test_the_folder_is_the_argument_or_from_the_environment_or_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with used(None) as server:
        assert server.folder == tmp_path / ".stagebell"
        assert (server.folder / ".gitignore").read_text() == "*\n"
    monkeypatch.setenv("STAGEBELL_FOLDER", "named")
    with used(None) as server:
        assert server.folder == tmp_path / "named"
    with used(tmp_path / "argument") as server:
        assert server.folder == tmp_path / "argument"


def test_two_processes_share_one_server(folder: Path, starts: Starts) -> None:
    one, two = starts(folder), starts(folder)
    assert one.hears() == two.hears() != ""


def test_ten_processes_at_once_start_one_server(folder: Path, starts: Starts) -> None:
    users = [starts(folder) for _ in range(10)]
    assert len({user.hears() for user in users}) == 1
    assert (folder / "server.log").read_text().count("Server initialized") == 1


def test_a_folder_reached_by_a_link_is_the_same_folder(folder: Path, tmp_path: Path) -> None:
    with used(folder) as server:
        (tmp_path / "link").symlink_to(folder)
        with used(tmp_path / "link") as same:
            assert same.url == server.url


def test_processes_with_other_temporary_folders_share_the_server(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with used(folder) as server:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with used(folder) as same:
            assert same.url == server.url


def test_the_path_of_the_folder_may_be_long_and_odd(tmp_path: Path) -> None:
    with used(tmp_path / ("long " * 40) / ("ü%20" * 50) / ".stagebell") as server:
        assert len(str(server.folder)) > 400
        assert info(server)["run_id"]


def test_only_this_user_reaches_the_server(folder: Path) -> None:
    with used(folder) as server, client_of(server) as client:
        directory = socket_of(server).parent.lstat()
        assert stat.S_IMODE(directory.st_mode) == 0o700
        assert directory.st_uid == os.geteuid()
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
        assert client.config_get("port") == {"port": "0"}


# What is kept


def test_data_is_there_after_all_users_went(folder: Path) -> None:
    with used(folder) as server, client_of(server) as client:
        client.set("kept", "yes")
        first = info(server)
    wait_until(lambda: process_is_gone(first["process_id"]), GONE_SECONDS)
    with used(folder) as server, client_of(server) as client:
        assert client.get("kept") == b"yes"
        assert info(server)["run_id"] != first["run_id"]


def test_a_killed_server_is_started_anew_on_its_data_at_its_socket(folder: Path) -> None:
    with used(folder) as server, client_of(server) as client:
        client.set("kept", "yes")
        client.waitaof(1, 0, 5000)
        os.kill(pid_of(server), signal.SIGKILL)
        with used(folder) as again:
            assert again.url == server.url
            assert client.get("kept") == b"yes"


# The end of its life


def test_gone_after_the_last_release_and_not_before(folder: Path) -> None:
    first, last = EmbeddedServer.acquire_blocking(folder), EmbeddedServer.acquire_blocking(folder)
    pid, watcher = pid_of(last), parent_of(pid_of(last))
    first.release()
    first.release()
    assert pid_of(last) == pid
    last.release()
    wait_until(lambda: process_is_gone(pid) and process_is_gone(watcher), GONE_SECONDS)
    assert not socket_of(last).exists()
    assert not (folder / "address").exists()


def test_gone_after_the_only_user_was_killed(folder: Path, starts: Starts) -> None:
    user = starts(folder)
    user.hears()
    with used(folder) as server:
        pid = pid_of(server)
    assert user.ping() == "True"
    user.process.kill()
    wait_until(lambda: process_is_gone(pid), GONE_SECONDS)


def test_gone_when_a_user_forgot_to_release(folder: Path) -> None:
    pid = pid_of(EmbeddedServer.acquire_blocking(folder))
    wait_until(lambda: process_is_gone(pid), GONE_SECONDS)


async def test_gone_when_the_acquire_was_cancelled(folder: Path) -> None:
    acquiring = asyncio.create_task(EmbeddedServer.acquire(folder))
    await eventually((folder / "server.lock").exists)
    assert acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring


def test_an_interrupt_of_the_user_who_started_it_does_not_end_it(folder: Path, starts: Starts) -> None:
    starter = starts(folder)
    run_id = starter.hears()
    other = starts(folder)
    assert other.hears() == run_id
    os.killpg(starter.process.pid, signal.SIGINT)
    starter.process.wait(20)
    assert other.ping() == "True"
    with used(folder) as server:
        assert info(server)["run_id"] == run_id


def test_users_who_come_and_go_at_the_moment_of_the_end_always_have_a_server(folder: Path) -> None:
    for visit in range(1, 16):
        with used(folder) as server, client_of(server) as client:
            assert client.incr("visits") == visit


def test_a_user_who_comes_while_the_server_ends_waits_for_the_next_one(folder: Path) -> None:
    with used(folder) as server:
        pid = pid_of(server)
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: not (folder / "address").exists(), GONE_SECONDS)
        with pytest.raises(ServerUnavailable, match=r"is ending.*server\.log"):
            EmbeddedServer.acquire_blocking(folder, timeout=0.2)
    finally:
        os.kill(pid, signal.SIGCONT)
    with used(folder) as server:
        assert process_is_gone(pid)
        assert info(server)["run_id"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_server_ends_with_its_watcher(folder: Path) -> None:
    with used(folder) as server:
        pid = pid_of(server)
        os.kill(parent_of(pid), signal.SIGKILL)
        wait_until(lambda: process_is_gone(pid), GONE_SECONDS)
        with used(folder) as again:
            assert again.url == server.url
            assert pid_of(again) != pid


def test_a_server_without_a_watcher_is_ended_before_another_starts(folder: Path, tmp_path: Path) -> None:
    with used(folder) as server:
        address = socket_of(server)
    wait_until(lambda: is_free(folder / "watcher.lock"), GONE_SECONDS)
    (folder / "address").write_text(str(address))
    with (folder / "server.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        options = ["--port", "0", "--unixsocket", str(address), "--dir", str(folder), "--appendonly", "yes"]
        orphan = subprocess.Popen(
            [find_server(), *options, "--save", ""], pass_fds=[lock.fileno()], stdout=subprocess.DEVNULL
        )
    wait_until(lambda: can_set(address, "kept", "yes"), 10)
    with used(folder) as server, client_of(server) as client:
        assert orphan.wait(10) == 0
        assert pid_of(server) != orphan.pid
        assert client.get("kept") == b"yes"


def test_a_deleted_folder_is_made_anew_with_a_server_of_its_own(folder: Path) -> None:
    with used(folder) as old:
        pid = pid_of(old)
        shutil.rmtree(folder)
        with used(folder) as new:
            assert new.url != old.url
            old.release()
            wait_until(lambda: process_is_gone(pid), GONE_SECONDS)
            assert info(new)["run_id"]
            with used(folder) as same:
                assert same.url == new.url


# What goes wrong


def test_a_program_that_does_not_come_up_is_an_error_that_names_the_log(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "broken-server"
    program.write_text("#!/bin/sh\necho no luck\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("STAGEBELL_SERVER", str(program))
    with pytest.raises(ServerUnavailable, match=r"ended with code 7; see .*server\.log"):
        EmbeddedServer.acquire_blocking(folder)
    assert "no luck" in (folder / "server.log").read_text()
    monkeypatch.delenv("STAGEBELL_SERVER")
    with used(folder) as server:
        assert info(server)["run_id"]


def test_a_program_that_never_answers_is_ended_after_the_timeout(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "silent-server"
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    program.chmod(0o755)
    monkeypatch.setenv("STAGEBELL_SERVER", str(program))
    with pytest.raises(ServerUnavailable, match=r"did not answer in time.*server\.log"):
        EmbeddedServer.acquire_blocking(folder, timeout=0.5)
    wait_until(lambda: is_free(folder / "server.lock"), GONE_SECONDS)


def test_a_server_that_hangs_is_an_error_after_the_timeout(folder: Path) -> None:
    with used(folder) as server:
        pid = pid_of(server)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ServerUnavailable, match=r"does not answer at .*\.sock.*server\.log"):
                EmbeddedServer.acquire_blocking(folder, timeout=0.3)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerUnavailable, match="cannot use its folder"):
        EmbeddedServer.acquire_blocking(tmp_path / "file" / ".stagebell")
