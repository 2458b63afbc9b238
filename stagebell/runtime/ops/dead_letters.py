"""`stagebell dead-letters`: what was set aside, as a table for people or as JSON, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from stagebell.errors import MalformedMessage, Undeliverable, UnknownDeadLetter
from stagebell.messages.envelope import timestamp
from stagebell.messages.masking import mask, mask_text
from stagebell.runtime.ops.console import USAGE, CommandFailed, give, one_line, say_error
from stagebell.runtime.ops.reading import WIDTH_OF_A_PIPE, server_to_read
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.tables import records, span
from stagebell.runtime.redis.dead_letters import DeadLetters
from stagebell.runtime.redis.letters import DeadLetter

Act = Callable[[DeadLetters, str], Awaitable[None]]


def run_list(settings: Settings, *, type: str | None, limit: int | None, as_json: bool) -> None:
    """Show the newest dead letters.

    Raises:
        StagebellError: the server cannot be reached, or refuses.
    """
    found, count = asyncio.run(_read(settings, type, limit))
    if as_json:
        give(json.dumps({"count": count, "dead_letters": [to_json(each) for each in found]}, indent=2))
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
    shown = "" if len(found) == count else f", shown are {len(found):,}"
    console.print(Text(f"dead letters of namespace {settings.namespace} at {settings.server}: {count:,}{shown}"))
    records(console, map(_record, found))


def run_show(settings: Settings, *, id: str, as_json: bool) -> None:
    """Show one dead letter.

    Raises:
        UnknownDeadLetter: it is not there.
    """
    letter = asyncio.run(_get(settings, id))
    if as_json:
        give(json.dumps(to_json(letter), indent=2))
        return
    told = to_json(letter)
    for name in ("id", "agent", "message_type", "message_id", "set_aside", "attempts", "reason"):
        give(f"{name.replace('_', ' ') + ':':14}{told[name]}")
    give(f"message:\n{json.dumps(mask(told['data']), indent=2, ensure_ascii=False)}")
    if told["traceback"]:
        give(told["traceback"])


def run_requeue(settings: Settings, *, ids: Sequence[str], type: str | None) -> int:
    """Requeue these, or without ids all (of an agent type); returns the exit code."""
    return asyncio.run(_each(settings, ids, type, "requeued", DeadLetters.requeue))


def run_discard(settings: Settings, *, ids: Sequence[str], type: str | None, sure: bool) -> int:
    """Discard these, or without ids all (of an agent type); returns the exit code.

    Raises:
        CommandFailed: all were to be discarded, and nobody has said that this is meant.
    """
    if not ids and not sure:
        which = f"all dead letters of agent type {type}" if type else f"ALL dead letters of {settings.namespace}"
        if not sys.stdin.isatty():
            raise CommandFailed(f"this deletes {which}: give --yes if that is meant", code=USAGE)
        answer = input(f"Delete {which}? They cannot be brought back. [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            raise CommandFailed("nothing was deleted")
    return asyncio.run(_each(settings, ids, type, "discarded", DeadLetters.discard))


def to_json(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as plain JSON, credentials hidden in what was raised; its message as JSON too, if it is JSON."""
    try:
        data: object = json.loads(letter.data)
    except (ValueError, RecursionError):
        data = letter.data.decode("utf-8", "backslashreplace")
    names = ("id", "agent", "message_type", "message_id", "attempts", "reason", "traceback")
    values = {name: getattr(letter, name) for name in names}
    for name in ("reason", "traceback"):
        values[name] = mask_text(values[name])
    return {**values, "set_aside": timestamp(letter.at_ms), "data": data}


def _record(letter: DeadLetter) -> tuple[list[str], list[str]]:
    age = max(0, int(time.time() * 1000) - letter.at_ms)
    attempts = [f"{letter.attempts} attempt{'' if letter.attempts == 1 else 's'}"] if letter.attempts else []
    words = [letter.id, *([letter.agent] if letter.agent else []), letter.message_type or "?", f"{span(age)} ago"]
    return [*words, *attempts], [one_line(mask_text(letter.reason))]


@asynccontextmanager
async def _open(settings: Settings) -> AsyncGenerator[DeadLetters]:
    async with server_to_read(settings) as url, DeadLetters(url, namespace=settings.namespace) as letters:
        yield letters


async def _read(settings: Settings, type: str | None, limit: int | None) -> tuple[list[DeadLetter], int]:
    async with _open(settings) as letters:
        found = await letters.list(type=type, limit=limit)
        return found, len(found) if limit is None or len(found) < limit else await letters.count(type=type)


async def _get(settings: Settings, id: str) -> DeadLetter:
    async with _open(settings) as letters:
        return await letters.get(id)


async def _each(settings: Settings, ids: Sequence[str], type: str | None, done: str, act: Act) -> int:
    count = failed = 0
    async with _open(settings) as letters:
        async for id in _chosen(letters, ids, type):
            try:
                await act(letters, id)
            except (UnknownDeadLetter, Undeliverable, MalformedMessage) as error:
                failed += 1
                say_error(f"{id} is not {done}: {one_line(error)}")
            else:
                count += 1
    give(f"{done} {count:,} dead letter{'' if count == 1 else 's'}")
    return 1 if failed else 0


async def _chosen(letters: DeadLetters, ids: Sequence[str], type: str | None) -> AsyncIterator[str]:
    if ids:
        for id in ids:
            yield id
        return
    async for letter in letters.walk(type=type):
        yield letter.id
