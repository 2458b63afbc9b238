"""`stagebell publish`: messages from a shell reach the agents, and bad ones are named."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from stagebell import RedisRuntime
from stagebell.runtime.redis.overview import Overview
from tests.runtime.ops.commands import Shell
from tests.support.agents import host
from tests.support.servers import Server, available_kinds
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def note(text: str) -> str:
    return json.dumps({"text": text})


class Open:
    """A publish whose input goes on."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())

    async def end(self, last: str = "") -> tuple[int | None, str, str]:
        async with asyncio.timeout(10):
            out, errors = await self.process.communicate(last.encode())
        return self.process.returncode, out.decode(), errors.decode()


async def open_publish(shell: Shell) -> Open:
    return Open(
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stagebell", "publish", "orders/eu", "Note", "-"),
            cwd=shell.folder,
            env=shell.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    )


async def backlog(url: str, namespace: str) -> int:
    return (await Overview.read(url, namespace)).events.backlog


async def test_a_message_reaches_its_agent(shell: Shell) -> None:
    done = shell.run("publish", "orders/eu", "Note", note("tea"), "--id", "n7")
    assert (done.returncode, done.stdout) == (0, "published 1 message\n")
    await shell.start("worker", "shop:setup").ready()
    notes = shell.folder / "notes"
    await eventually(lambda: notes.exists() and notes.read_text() == "eu tea n7\n", within=10)


async def test_lines_are_published_but_for_the_bad_ones(shell: Shell, locked_url: str, namespace: str) -> None:
    lines = f"{note('a')}\n\n{{'no'}}\n{note('b')}\n{note('c')}"
    done = shell.run("publish", "orders/eu", "Note", "-", "--id", "day1", feed=lines)
    assert done.returncode == 1
    assert done.stdout == "published 3 messages, left out 1 bad line\n"
    assert done.stderr.startswith("stagebell: line 3 is left out: field 'data' is not JSON")
    assert await backlog(locked_url, namespace) == 3
    await shell.start("worker", "shop:setup").ready()
    notes = shell.folder / "notes"
    wanted = "eu a day1-1\neu b day1-4\neu c day1-5\n"
    await eventually(lambda: notes.exists() and notes.read_text() == wanted, within=10)


async def test_many_lines_without_a_dash(shell: Shell, locked_url: str, namespace: str) -> None:
    done = shell.run("publish", "orders/eu", "Note", feed="".join(note("x" * 100) + "\n" for _ in range(5000)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "published 5,000 messages\n", "")
    assert await backlog(locked_url, namespace) == 5000


async def test_only_the_first_bad_lines_are_named(shell: Shell) -> None:
    done = shell.run("publish", "orders/eu", "Note", feed="nonsense\n" * 50)
    assert done.returncode == 1
    assert done.stdout == "published 0 messages, left out 50 bad lines\n"
    assert done.stderr.splitlines()[-1] == "stagebell: and 30 more bad lines"
    assert len(done.stderr.splitlines()) == 21


async def test_a_line_is_published_while_more_may_come(shell: Shell, locked_url: str, namespace: str) -> None:
    process = await open_publish(shell)
    process.write(note("first") + "\n")

    async def arrived() -> bool:
        return await backlog(locked_url, namespace) == 1

    await eventually(arrived, within=10)
    assert await process.end(note("second")) == (0, "published 2 messages\n", "")


async def test_an_interrupted_publish_says_how_far_it_came(shell: Shell, locked_url: str, namespace: str) -> None:
    process = await open_publish(shell)
    process.write(note("first") + "\n")

    async def arrived() -> bool:
        return await backlog(locked_url, namespace) == 1

    await eventually(arrived, within=10)
    process.process.send_signal(signal.SIGINT)
    await asyncio.wait_for(process.process.wait(), 10)
    assert await process.end() == (130, "", "stagebell: interrupted: published 1 message\n")


async def test_a_server_that_goes_away_meanwhile(shell: Shell) -> None:
    with Server(available_kinds()[0]) as server:
        shell.environment["STAGEBELL_REDIS"] = server.url
        process = await open_publish(shell)
        process.write(note("first") + "\n")

        async def arrived() -> bool:
            return await backlog(server.url, shell.environment["STAGEBELL_NAMESPACE"]) == 1

        await eventually(arrived, within=10)
        server.kill()
        code, out, errors = await process.end(note("second"))
    assert (code, out) == (1, "")
    assert errors.startswith("error: the server at 127.0.0.1:")
    assert errors.endswith("published 1 message, line 2 may or may not have arrived\n")


def test_a_message_that_is_not_json(shell: Shell) -> None:
    done = shell.run("publish", "orders/eu", "Note", "{tea}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the message is not published: field 'data' is not JSON")


def test_a_message_that_is_too_large(shell: Shell) -> None:
    done = shell.run("publish", "orders/eu", "Note", feed=note("x" * 1024 * 1024))
    assert done.returncode == 1
    assert "line 1 is left out" in done.stderr
    assert "the limit is 1,048,576" in done.stderr


@pytest.mark.parametrize("topic", ["orders", "or ders/eu", ""])
def test_a_topic_that_is_none(shell: Shell, topic: str) -> None:
    done = shell.run("publish", topic, "Note", "{}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the topic {topic!r} must be type/source")


async def test_a_type_that_no_worker_knows_is_mentioned(shell: Shell) -> None:
    await shell.start("worker", "shop:setup").ready()
    done = shell.run("publish", "orders/eu", "Notes", "{}")
    assert done.returncode == 0
    assert done.stderr.startswith("stagebell: no worker has announced the type 'Notes' so far; known are ")
    assert "Note" in done.stderr


def test_nothing_on_standard_input_is_an_error(shell: Shell) -> None:
    done = shell.run("publish", "orders/eu", "Note", feed="\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing is published, since standard input is empty" in done.stderr


async def test_what_nobody_can_hear_is_told_and_kept(shell: Shell, locked_url: str, namespace: str) -> None:
    async with RedisRuntime(locked_url, namespace=namespace) as runtime:
        await host(runtime, "clerk", topics=("orders",))
    unheard = shell.run("publish", "ordres/eu", "Note", note("tea"))
    assert (unheard.returncode, unheard.stdout) == (0, "published 1 message\n")
    assert "nobody subscribes to topic 'ordres/eu' so far" in unheard.stderr
    assert shell.run("publish", "orders/eu", "Note", note("tea")).stderr == ""
