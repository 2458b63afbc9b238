"""`stagebell run`: what the runs of agents did, told to people or as JSON; secrets are hidden in both."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from stagebell.agents.archive import StoredRun, stored_conversation, stored_runs
from stagebell.agents.explaining import explain
from stagebell.agents.inquiries import status_of
from stagebell.agents.state import LoopState, dump_entry
from stagebell.agents.trajectory import tell
from stagebell.messages.envelope import timestamp
from stagebell.messages.masking import mask, mask_text
from stagebell.runtime.ops.console import USAGE, CommandFailed, give, one_line, say
from stagebell.runtime.ops.reading import WIDTH_OF_A_PIPE, server_to_read
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.tables import records, span
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.keys import NamespaceKeys
from stagebell.runtime.redis.publisher import Publisher

_ADVICE = "agents that make runs store them (ModelAgent and whatever has its loop)"
_TYPE = re.compile(r"[\w.-]+")


def run_show(settings: Settings, *, run_id: str, whole: bool, as_json: bool) -> None:
    """Show one run, round by round.

    Raises:
        UnknownRun: it is not there.
        StagebellError: the server cannot be reached, or refuses.
    """
    state = asyncio.run(_conversation(settings, run_id))
    status = status_of(state, run_id)
    if as_json:
        entries = [mask(dump_entry(entry)) for entry in state.conversation if entry.run_id == run_id]
        give(json.dumps({"run_id": run_id, "status": status, "entries": entries}, indent=2, ensure_ascii=False))
        return
    give(f"run {run_id}: {status}")
    for line in tell(state.conversation, run_id, **({"longest": sys.maxsize} if whole else {})):
        give(line)


def run_explain(settings: Settings, *, run_id: str, as_json: bool) -> None:
    """Show why a run went as it did.

    Raises:
        UnknownRun: it is not there.
        StagebellError: the server cannot be reached, or refuses.
    """
    told = explain(asyncio.run(_conversation(settings, run_id)), run_id)
    if not as_json:
        give(str(told))
        return
    by_step: dict[str, object] = {
        name: [{"step": step, "text": text} for step, text in getattr(told, name)] for name in ("answers", "misfits")
    }
    give(json.dumps({**asdict(told), **by_step}, indent=2, ensure_ascii=False))


def run_list(settings: Settings, *, type: str, limit: int | None, as_json: bool) -> None:
    """Show the runs of the agents of one type, the newest first.

    Raises:
        CommandFailed: there can be no such type, or nobody knows it.
        StagebellError: the server cannot be reached, or refuses.
    """
    if not _TYPE.fullmatch(type):
        raise CommandFailed(f"{type!r} is no agent type: those have letters, digits or _ - .", code=USAGE)
    found = asyncio.run(_runs(settings, type))
    shown = found if limit is None else found[:limit]
    if as_json:
        give(json.dumps({"count": len(found), "runs": [_to_json(each) for each in shown]}, indent=2))
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
    rest = "" if len(shown) == len(found) else f", shown are {len(shown):,}"
    console.print(Text(f"runs of agent type {type} in {settings.namespace} at {settings.server}: {len(found):,}{rest}"))
    records(console, map(_record, shown))


async def _conversation(settings: Settings, run_id: str) -> LoopState:
    async with server_to_read(settings) as url, Publisher(url, namespace=settings.namespace) as publisher:
        return await stored_conversation(publisher, run_id)


async def _runs(settings: Settings, type: str) -> list[StoredRun]:
    async with server_to_read(settings) as url, Publisher(url, namespace=settings.namespace) as publisher:
        found, others = await stored_runs(publisher, type)
        if others:
            say(f"{others:,} of the stored states of agent type {type!r} hold no runs: {_ADVICE}")
        elif not found:
            await _check_type(url, settings.namespace, type)
            say(f"nothing is stored of agent type {type!r}: {_ADVICE}, from their first run on")
        return found


async def _check_type(url: str, namespace: str, type: str) -> None:
    """A list may be empty because nobody knows the type."""
    connection = await Connection.open(url, name="stagebell-run")
    try:
        names: list[bytes] = await connection.execute("HKEYS", NamespaceKeys(namespace).reg)
    finally:
        connection.close()
    known = sorted(name[2:].decode() for name in names if name.startswith(b"t:"))
    if type not in known:
        others = f"; known are {', '.join(known[:20])}" if known else ""
        raise CommandFailed(f"no worker has ever hosted agents of type {type!r} in namespace {namespace}{others}")


def _to_json(run: StoredRun) -> dict[str, object]:
    began = None if run.began is None else timestamp(run.began)
    return {**run._asdict(), "began": began, "text": mask_text(run.text)}


def _record(run: StoredRun) -> tuple[list[str], list[str]]:
    now = int(time.time() * 1000)
    began = "not begun" if run.began is None else f"began {span(max(0, now - run.began))} ago"
    reason = f"{run.status} ({run.reason})" if run.reason else run.status
    words = [run.run_id, reason, f"{run.steps} step{'' if run.steps == 1 else 's'}", began]
    texts = [f"waits for {', '.join(run.waits_for)}"] if run.waits_for else []
    if run.text:
        texts.append(one_line(mask_text(run.text)))
    return [*words, *([f"last tool {run.last_tool}"] if run.last_tool else [])], texts
