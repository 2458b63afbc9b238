"""`stagebell ps`: a namespace as tables for people, or as JSON for programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stagebell.runtime.ops.console import CommandFailed, give
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.redis.client import find_server
from stagebell.runtime.redis.overview import Overview, PartitionView, TypeView, WorkerView

_WIDTH_OF_A_PIPE = 200
_MANY = 12

Row = list[str | Text]


def run_ps(settings: Settings, *, every_partition: bool, as_json: bool) -> None:
    """Read the namespace and print it.

    Raises:
        CommandFailed: there is nothing to look at.
        StagebellError: the server cannot be reached, or refuses.
    """
    overview = asyncio.run(_read(settings))
    if as_json:
        give(json.dumps(to_json(overview, settings.server), indent=2, ensure_ascii=False))
    else:
        show(overview, settings.server, make_console(), every_partition=every_partition)


async def _read(settings: Settings) -> Overview:
    if settings.redis is None:
        folder = settings.folder or Path(".stagebell")
        if not folder.is_dir():
            raise CommandFailed(f"there is no folder {folder}: go to the project's folder, or give --redis")
    url, server = await find_server(settings.redis, settings.folder)
    try:
        return await Overview.read(url, settings.namespace, lease_ms=int(settings.lease * 1000))
    finally:
        if server is not None:
            server.release()


def to_json(overview: Overview, server: str) -> dict[str, Any]:
    """The overview as plain JSON; what the tables add up is there too."""
    types = [{**asdict(view), **_sums(view)} for view in overview.types]
    return {"server": server, **asdict(overview), "types": types}


def make_console() -> Console:
    """Standard output; into a pipe or file nothing is cut off at the width of a terminal."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_WIDTH_OF_A_PIPE)


def show(overview: Overview, server: str, console: Console, *, every_partition: bool) -> None:
    """Print the tables."""
    console.print(Text(f"namespace {overview.namespace} at {server}"))
    for title, table in _tables(overview, every_partition):
        console.print()
        console.print(Text(title, style="bold"))
        if table is not None:
            console.print(table)


def _tables(overview: Overview, every_partition: bool) -> Iterator[tuple[str, Table | None]]:
    workers, types = overview.workers, overview.types
    head = ["worker", "host", "#pid", "#up", "#last beat", "#partitions", "agent types"]
    # The agents bound to a process share its inbox; few have any.
    inboxes = any(view.backlog or view.dead_letters for view in workers)
    more = ["#own backlog", "#own dead letters"] if inboxes else []
    yield (
        _title("workers", len(workers), "nothing runs until one is started: stagebell worker MODULE:SETUP"),
        _table([*head, *more], [_worker_row(view)[: len(head) + len(more)] for view in workers]),
    )
    head = [
        "agent type",
        "#workers",
        "#partitions",
        "#without owner",
        "#backlog",
        "#started",
        "#dead letters",
        "#states",
    ]
    yield (
        _title("agent types", len(types), "a worker announces them when it starts"),
        _table(head, [_type_row(view) for view in types]),
    )
    everything = [part for view in types for part in view.partitions]
    shown = everything if every_partition else [part for part in everything if not part.empty]
    head = ["partition", "owner", "#lease left", "#backlog", "#started", "#dead letters", "#states"]
    if everything:
        more = "" if every_partition else f" of {len(everything)} hold something (--all shows the others)"
        yield f"partitions: {len(shown)}{more}", _table(head, [_partition_row(part) for part in shown])
    events = overview.events
    yield (
        "events from other systems",
        _table(
            ["stream", "owner", "#lease left", "#backlog", "#dead letters"],
            [
                [
                    f"sb:{{{overview.namespace}}}:events",
                    *_owner(events.owner, events.lease_ms),
                    *_counts(events.backlog),
                    _alarm(events.dead_letters),
                ]
            ],
        ),
    )


def _title(what: str, count: int, advice: str) -> str:
    return f"{what}: {count}" if count else f"{what}: none ({advice})"


def _table(head: list[str], rows: list[Row]) -> Table | None:
    """A table, None without rows; a heading that begins with # is that of a column of numbers."""
    if not rows:
        return None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in head:
        table.add_column(name.lstrip("#"), justify="right" if name[0] == "#" else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _worker_row(view: WorkerView) -> Row:
    beat = Text(f"{view.beat_ms / 1000:.1f} s ago", style="" if view.alive else "red")
    types = view.types if len(view.types) <= _MANY else [*view.types[:_MANY], f"and {len(view.types) - _MANY} more"]
    return [
        view.name,
        view.host,
        str(view.pid),
        span(view.up_ms),
        beat,
        str(view.owned),
        ", ".join(types),
        *_counts(view.backlog),
        _alarm(view.dead_letters),
    ]


def _type_row(view: TypeView) -> Row:
    sums = _sums(view)
    name = f"{view.name} (in worker {view.bound_to})" if view.bound_to else view.name
    workers = _alarm(0, "none") if not view.hosts else str(len(view.hosts))
    return [
        name,
        workers,
        str(len(view.partitions)) if view.partitions else "-",
        _alarm(sums["without_owner"]),
        *_counts(sums["backlog"], sums["started"]),
        _alarm(sums["dead_letters"]),
        *_counts(sums["states"]),
    ]


def _partition_row(part: PartitionView) -> Row:
    owner = _owner(part.owner, part.lease_ms)
    return [
        f"{part.type}:{part.number}",
        *owner,
        *_counts(part.backlog, part.started),
        _alarm(part.dead_letters),
        *_counts(part.states),
    ]


def _sums(view: TypeView) -> dict[str, int]:
    parts = view.partitions
    return {
        "owned": sum(part.owned for part in parts),
        "without_owner": sum(not part.owned for part in parts),
        "backlog": sum(part.backlog for part in parts),
        "started": sum(part.started for part in parts),
        "dead_letters": sum(part.dead_letters for part in parts),
        "states": sum(part.states for part in parts),
    }


def _owner(owner: str, lease_ms: int) -> Row:
    if not owner:
        return [Text("none", style="red"), "-"]
    return [owner, f"{lease_ms / 1000:.1f} s" if lease_ms else Text("expired", style="red")]


def _counts(*numbers: int) -> Row:
    return [f"{number:,}" for number in numbers]


def _alarm(number: int, text: str = "") -> Text:
    return Text(text or f"{number:,}", style="red" if number or text else "")


def span(ms: int) -> str:
    """A length of time in its two largest units: `48 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""
    seconds = ms // 1000
    for unit, size, lower, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // part} {lower}"
    return f"{seconds} s"
