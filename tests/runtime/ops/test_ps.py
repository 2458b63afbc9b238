"""`stagebell ps`: what there is, with workers and without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from tests.runtime.ops.commands import Shell
from tests.support.agents import Ask
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def ps_json(shell: Shell) -> dict[str, Any]:
    done = shell.run("ps", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_an_empty_namespace(shell: Shell, namespace: str) -> None:
    done = shell.run("ps")
    assert done.returncode == 0
    assert done.stdout.startswith(f"namespace {namespace} at 127.0.0.1:")
    assert "workers: none" in done.stdout
    assert "agent types: none" in done.stdout


async def test_a_worker_its_types_and_partitions(shell: Shell, publisher: Publisher, namespace: str) -> None:
    worker = shell.start("worker", "shop:setup")
    said = await worker.ready()
    await eventually(lambda: ps_json(shell)["types"][0]["owned"] == 16, within=10)
    document = ps_json(shell)
    (seen,) = document["workers"]
    assert (seen["name"], seen["pid"], seen["types"], seen["owned"]) == (
        said["worker"],
        worker.pid,
        ["clerk"],
        16,
    )
    assert seen["alive"]
    (clerk,) = document["types"]
    assert (clerk["name"], clerk["hosts"], clerk["without_owner"], clerk["backlog"]) == (
        "clerk",
        [said["worker"]],
        0,
        0,
    )
    assert {part["owner"] for part in clerk["partitions"]} == {said["worker"]}
    assert document["events"]["owner"] == said["worker"]
    assert "Ask" in document["events"]["types"]
    shown = shell.run("ps").stdout
    assert said["worker"] in shown
    assert "partitions: 0 of 16 hold something" in shown
    assert "clerk:7" in shell.run("ps", "--all").stdout


async def test_what_waits_when_no_worker_is_alive(shell: Shell, publisher: Publisher) -> None:
    worker = shell.start("worker", "shop:setup")
    await worker.ready()
    assert await worker.stop() == 0
    await publisher.send(Ask(text="later"), AgentId("clerk", "one"))
    await publisher.schedule(Ask(text="tomorrow"), AgentId("clerk", "one"), delay=86_400)
    shell.run("publish", "orders/eu", "Note", "{}")
    document = ps_json(shell)
    assert document["workers"] == []
    (clerk,) = document["types"]
    assert (clerk["backlog"], clerk["timers"], clerk["without_owner"], clerk["hosts"]) == (1, 1, 16, [])
    assert document["events"]["backlog"] == 1
    shown = shell.run("ps").stdout
    assert "partitions: 1 of 16 hold something" in shown
    assert "none" in shown


async def test_a_worker_that_was_killed_is_seen_as_silent(shell: Shell) -> None:
    worker = shell.start("worker", "shop:setup")
    said = await worker.ready()
    worker.process.kill()

    def silent() -> bool:
        return [(w["name"], w["alive"]) for w in ps_json(shell)["workers"]] == [(said["worker"], False)]

    await eventually(silent, within=10)


async def test_dead_letters_of_events(shell: Shell) -> None:
    await shell.start("worker", "shop:setup").ready()
    shell.run("publish", "orders/eu", "Unheard", "{}")
    await eventually(lambda: ps_json(shell)["events"]["dead_letters"] == 1, within=10)


def test_no_folder_of_an_embedded_server(shell: Shell) -> None:
    done = shell.run("ps", STAGEBELL_REDIS="")
    assert done.returncode == 1
    assert done.stderr == "error: there is no folder .stagebell: go to the project's folder, or give --redis\n"
    assert not (shell.folder / ".stagebell").exists()
