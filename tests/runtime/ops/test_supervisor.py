"""Several worker processes under one supervisor."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
import redis
from autogen_core import AgentId

from stagebell import Publisher
from stagebell.runtime.ops.child import Child
from stagebell.runtime.ops.worker import WorkerRuntime
from tests.failure.view import View
from tests.runtime.ops.commands import Command, Shell, is_running
from tests.support.agents import Ask
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

CLERK = AgentId("clerk", "one")


@pytest.fixture
def view(locked_url: str, namespace: str) -> Iterator[View]:
    """What the server shows of the test's namespace."""
    client = redis.Redis.from_url(locked_url)
    yield View(client, namespace)
    client.close()


async def started(shell: Shell, *more: str) -> tuple[Command, list[int]]:
    supervisor = shell.start("worker", "shop:setup", "--processes", "2", *more)
    said = await supervisor.ready()
    assert (said["processes"], said["types"]) == ("2", "clerk")
    return supervisor, [int(pid) for pid in said["pids"].split(",")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_is_ready_once_and_stops_all(shell: Shell, publisher: Publisher, number: signal.Signals) -> None:
    supervisor, pids = await started(shell)
    assert len(pids) == 2
    assert supervisor.pid not in pids
    answer: str = await publisher.call(Ask(text="tea"), CLERK, timeout=10)
    assert int(answer.split()[0]) in pids
    assert await supervisor.stop(number) == 0
    assert not [pid for pid in pids if is_running(pid)]
    assert supervisor.out.count("ready") == 1


async def test_a_child_that_dies_is_started_again(shell: Shell, publisher: Publisher) -> None:
    supervisor, (first, second) = await started(shell, "--lease", "1")
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: "is up, as worker" in supervisor.errors, within=20)
    assert f"worker process {first} was killed by SIGKILL: another one starts in 0.2 s" in supervisor.errors
    os.kill(second, signal.SIGKILL)
    await eventually(lambda: supervisor.errors.count("is up, as worker") == 2, within=20)
    answer: str = await publisher.call(Ask(text="tea"), CLERK, timeout=10)
    assert int(answer.split()[0]) not in (first, second)
    assert await supervisor.stop() == 0


async def test_others_have_the_agents_of_a_child_that_is_killed_at_once(
    shell: Shell, publisher: Publisher, view: View
) -> None:
    supervisor, (first, second) = await started(shell, "--lease", "60")
    killed, other = view.worker_of(first), view.worker_of(second)
    await eventually(lambda: {len(view.owned_by(name)) for name in (killed, other)} == {8, 9}, within=20)
    kept = {key: view.client.hget(key, "tok") for key in view.owned_by(other)}
    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    await eventually(lambda: not view.owned_by(killed), within=20)
    print(f"recovered in {time.monotonic() - began:.2f} s")
    keys = [str(number) for number in range(40)]
    answers: list[str] = [await publisher.call(Ask(text="tea"), AgentId("clerk", key), timeout=10) for key in keys]
    assert len(answers) == 40
    assert kept == {key: view.client.hget(key, "tok") for key in kept}, "nobody alive has lost anything"
    assert "others wait" not in supervisor.errors
    assert await supervisor.stop() == 0


async def test_so_it_is_with_the_embedded_server(shell: Shell, namespace: str) -> None:
    shell.environment["STAGEBELL_REDIS"] = ""
    supervisor, children = await started(shell, "--lease", "60", "--folder", "data")
    for pid in children:  # all of them, and with them the users of the server
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: supervisor.errors.count("is up, as worker") == 2, within=30)
    async with Publisher(namespace=namespace, folder=shell.folder / "data") as client:
        for key in range(10):
            answer: str = await client.call(Ask(text="tea"), AgentId("clerk", str(key)), timeout=20)
            assert int(answer.split()[0]) not in children
    assert "others wait" not in supervisor.errors
    assert await supervisor.stop() == 0


async def test_children_end_with_a_supervisor_that_is_killed(shell: Shell) -> None:
    supervisor, pids = await started(shell)
    supervisor.process.kill()
    await eventually(lambda: not [pid for pid in pids if is_running(pid)], within=8)


async def test_a_child_that_hangs_is_killed(shell: Shell) -> None:
    supervisor, pids = await started(shell, "--stop-grace", "0.1")
    os.kill(pids[0], signal.SIGSTOP)
    assert await supervisor.stop() == 1
    assert f"did not stop within 3.1 s and had to be killed: process {pids[0]}" in supervisor.errors
    assert not [pid for pid in pids if is_running(pid)]


async def test_a_second_signal_kills_all_at_once(shell: Shell) -> None:
    supervisor, pids = await started(shell, "--stop-grace", "60")
    os.kill(pids[0], signal.SIGSTOP)
    supervisor.process.send_signal(signal.SIGTERM)
    await eventually(lambda: not is_running(pids[1]), within=8)
    supervisor.process.send_signal(signal.SIGINT)
    assert await supervisor.ended(within=3) == 130
    await eventually(lambda: not is_running(pids[0]), within=3)


def test_a_setup_that_raises_ends_it(shell: Shell) -> None:
    done = shell.run("worker", "shop:fails", "--processes", "2")
    assert done.returncode == 1
    assert done.stderr == "error: shop:fails raised ValueError: the till is empty (--traceback shows where)\n"


def test_a_server_that_refuses_ends_it(shell: Shell) -> None:
    wrong = shell.environment["STAGEBELL_REDIS"].replace("op3n-sesame", "op3n-barley")
    done = shell.run("worker", "shop:setup", "-p", "2", STAGEBELL_REDIS=wrong)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "barley" not in done.stderr


_DIES_EARLY = """
import json, os, signal, socket, sys
line = socket.socket(fileno=int(sys.argv[1]))
line.sendall(json.dumps({"name": "w1"}).encode() + b"\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_child_that_dies_before_it_is_ready_is_known_by_name() -> None:
    """So others need not wait for the end of its leases."""
    child = await Child.start([sys.executable, "-c", _DIES_EARLY], dict(os.environ))
    await child.hear()
    await child.wait()
    assert (child.name, child.worker, child.error) == ("w1", "", "")


async def test_a_worker_tells_its_name_before_it_is_ready(locked_url: str, namespace: str) -> None:
    heard: list[str] = []
    runtime = WorkerRuntime(locked_url, namespace=namespace)
    runtime.on_named = heard.append
    await runtime.start()
    try:
        assert heard == [runtime.describe().worker]
    finally:
        await runtime.close()
