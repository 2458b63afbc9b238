"""`stagebell dead-letters`: listed, shown, requeued and discarded from a shell."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_core import TopicId

from stagebell import DeadLetters, Publisher
from tests.runtime.ops.commands import Shell
from tests.support.agents import Note
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

STRICT = """
from pathlib import Path
from shop import *
from stagebell import agent_options

@agent_options(retry=None)
class Strict(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("strict")

    @message_handler
    async def on_note(self, message: Note, ctx: MessageContext) -> None:
        if not Path("open").exists():
            raise ValueError(f"the shop is closed for {message.text}: https://me:hunter2hunter2@shop")
        with open("served", "a") as served:
            served.write(message.text + "\\n")

async def setup(runtime) -> None:
    await Strict.register(runtime, "strict", Strict)
    await runtime.add_subscription(TypeSubscription("visits", "strict"))
"""


def listed(shell: Shell, *arguments: str) -> list[dict[str, Any]]:
    done = shell.run("dead-letters", "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    letters: list[dict[str, Any]] = document["dead_letters"]
    return letters


@pytest.fixture
async def letters(locked_url: str, namespace: str) -> AsyncIterator[DeadLetters]:
    """The same from Python: quicker to ask again and again."""
    async with DeadLetters(locked_url, namespace=namespace) as letters:
        yield letters


async def until(letters: DeadLetters, count: int) -> None:
    async def reached() -> bool:
        return await letters.count() == count

    await eventually(reached, within=10)


async def a_closed_shop(shell: Shell, publisher: Publisher, letters: DeadLetters, *visitors: str) -> None:
    """A worker whose agents turned these visitors away."""
    (shell.folder / "strict.py").write_text(STRICT)
    await shell.start("worker", "strict:setup").ready()
    for visitor in visitors:
        await publisher.publish(Note(text=visitor), TopicId("visits", visitor))
    await until(letters, len(visitors))


async def test_a_letter_is_listed_shown_and_requeued(shell: Shell, publisher: Publisher, letters: DeadLetters) -> None:
    await a_closed_shop(shell, publisher, letters, "ada")
    shown = shell.run("dead-letters", "list").stdout
    assert "dead letters of namespace" in shown
    assert all(word in shown for word in ("strict/ada", "Note", "ValueError: the shop is closed for ada"))
    assert "hunter2" not in shown
    (letter,) = listed(shell, "--type", "strict")
    assert letter["data"] == {"text": "ada", "number": 0}
    shown = shell.run("dead-letters", "show", letter["id"]).stdout
    assert all(word in shown for word in ("strict/ada", '"text": "ada"', "Traceback (most recent call last)"))
    assert shown.count("https://me:***@shop") >= 2
    assert "hunter2" not in shown + str(letter)
    (shell.folder / "open").touch()
    done = shell.run("dead-letters", "requeue", letter["id"])
    assert (done.returncode, done.stdout) == (0, "requeued 1 dead letter\n")
    await eventually(lambda: (shell.folder / "served").exists(), within=10)
    assert await letters.count() == 0


async def test_all_are_requeued_or_discarded_at_once(shell: Shell, publisher: Publisher, letters: DeadLetters) -> None:
    await a_closed_shop(shell, publisher, letters, "ada", "bob", "eve")
    done = shell.run("dead-letters", "requeue", "--all", "--type", "strict")  # they are turned away again
    assert (done.returncode, done.stdout) == (0, "requeued 3 dead letters\n")
    await until(letters, 3)
    assert len(listed(shell, "--limit", "2")) == 2
    refused = shell.run("dead-letters", "discard", "--all")
    assert refused.returncode == 2
    assert "give --yes" in refused.stderr
    assert await letters.count() == 3
    done = shell.run("dead-letters", "discard", "--all", "--yes")
    assert (done.returncode, done.stdout) == (0, "discarded 3 dead letters\n")
    assert await letters.count() == 0


def test_what_is_not_there(shell: Shell) -> None:
    unknown = shell.run("dead-letters", "show", "strict:3/17-0")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("error: there is no dead letter 'strict:3/17-0'")
    assert shell.run("dead-letters", "requeue", "strict:3/17-0", "--all").returncode == 2
    unknown = shell.run("dead-letters", "requeue", "strict:3/17-0")
    assert unknown.returncode == 1
    assert "strict:3/17-0 is not requeued" in unknown.stderr
