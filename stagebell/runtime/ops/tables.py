"""An overview of a namespace as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stagebell.runtime.redis.overview import EventsView, Overview, PartitionView, TypeView, WorkerView

Row = list[str | Text]
Part = tuple[str, Table | None]

_MANY = 12
_WORKERS = "worker|host|#pid|#up|#last beat|#partitions|agent types"
_OWN_INBOXES = "|#own backlog|#own dead letters"
_TYPES = "agent type|#workers|#partitions|#without owner|#backlog|#started|#dead letters|#states|#timers"
_PARTITIONS = "partition|owner|#lease left|#backlog|#started|#dead letters|#states|#timers"
_PAUSED = "agent|#messages|worker"
_EVENTS = "stream|owner|#lease left|#backlog|#dead letters|#timers"


def show(overview: Overview, server: str, console: Console, *, every_partition: bool) -> None:
    """Print the tables.

    Args:
        overview: what to show.
        server: its place, for the first line.
        console: where to print.
        every_partition: also those with nothing in them.
    """
    console.print(Text(f"namespace {overview.namespace} at {server}"))
    partitions = [part for view in overview.types for part in view.partitions]
    for title, part in (
        _workers(overview.workers),
        *_paused(overview.workers),
        _types(overview.types),
        _partitions(partitions, every_partition),
        _events(overview.namespace, overview.events),
    ):
        console.print()
        console.print(Text(title, style="bold"))
        if part is not None:
            console.print(part)


def _workers(workers: Sequence[WorkerView]) -> Part:
    # The agents bound to a process share an inbox of it; few processes have one with something in it.
    inboxes = any(view.backlog or view.dead_letters for view in workers)
    title = _title("workers", len(workers), "start one: stagebell worker MODULE:SETUP")
    return title, table(_WORKERS + (_OWN_INBOXES if inboxes else ""), [_worker_row(view, inboxes) for view in workers])


def _paused(workers: Sequence[WorkerView]) -> list[Part]:
    rows: list[Row] = [[_red(agent), str(n), view.name] for view in workers for agent, n in view.paused.items()]
    title = f"paused agents: {len(rows)} (a newer program wrote to them: upgrade their workers)"
    return [(title, table(_PAUSED, rows))] if rows else []


def _types(types: Sequence[TypeView]) -> Part:
    title = _title("agent types", len(types), "a worker announces them when it starts")
    return title, table(_TYPES, [_type_row(view) for view in types])


def _partitions(partitions: Sequence[PartitionView], every: bool) -> Part:
    shown = partitions if every else [part for part in partitions if not part.empty]
    more = "" if every else f" of {len(partitions)} hold something (--all shows the others)"
    return f"partitions: {len(shown)}{more}", table(_PARTITIONS, [_partition_row(part) for part in shown])


def _events(namespace: str, events: EventsView) -> Part:
    owner = _owner(events.owner, events.lease_ms)
    row: Row = [
        f"sb:{{{namespace}}}:events",
        *owner,
        f"{events.backlog:,}",
        alarm(events.dead_letters),
        f"{events.timers:,}",
    ]
    return "events from other systems", table(_EVENTS, [row])


def _title(what: str, count: int, advice: str) -> str:
    return f"{what}: {count}" if count else f"{what}: none ({advice})"


def table(headings: str, rows: Sequence[Row]) -> Table | None:
    """A table, None without rows; headings are parted by `|`, and one that begins with # is of a column of numbers."""
    if not rows:
        return None
    made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in headings.split("|"):
        made.add_column(name.lstrip("#"), justify="right" if name[0] == "#" else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def records(console: Console, found: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
    """Print each as one line of few words, and below it what may be long.

    Nothing of that is cut off, since the end of a reason says what to do: a terminal wraps it, a pipe gets one line.
    """
    for words, texts in found:
        console.print(Text("  ".join(words), style="bold"), soft_wrap=True)
        for text in texts:
            if console.is_terminal:
                console.print(Padding(Text(text), (0, 0, 0, 4)))
            else:
                console.print(Text(f"    {text}"), soft_wrap=True)


def _worker_row(view: WorkerView, inboxes: bool) -> Row:
    beat = Text(f"{view.beat_ms / 1000:.1f} s ago", style="" if view.alive else "red")
    hidden = len(view.types) - _MANY
    types = ", ".join(view.types[:_MANY]) + (f" and {hidden} more" if hidden > 0 else "")
    own: Row = [f"{view.backlog:,}", alarm(view.dead_letters)] if inboxes else []
    return [view.name, view.host, str(view.pid), span(view.up_ms), beat, str(view.owned), types, *own]


def _type_row(view: TypeView) -> Row:
    return [
        f"{view.name} (in worker {view.bound_to})" if view.bound_to else view.name,
        str(len(view.hosts)) if view.hosts else _red("none"),
        str(len(view.partitions)) if view.partitions else "-",
        alarm(view.without_owner),
        f"{view.backlog:,}",
        f"{view.started:,}",
        alarm(view.dead_letters),
        f"{view.states:,}",
        f"{view.timers:,}",
    ]


def _partition_row(part: PartitionView) -> Row:
    return [
        f"{part.type}:{part.number}",
        *_owner(part.owner, part.lease_ms),
        f"{part.backlog:,}",
        f"{part.started:,}",
        alarm(part.dead_letters),
        f"{part.states:,}",
        f"{part.timers:,}",
    ]


def _owner(owner: str, lease_ms: int) -> Row:
    if not owner:
        return [_red("none"), "-"]
    return [owner, f"{lease_ms / 1000:.1f} s" if lease_ms else _red("expired")]


def alarm(number: int) -> str | Text:
    """A number, in red unless it is 0."""
    return _red(f"{number:,}") if number else "0"


def _red(text: str) -> Text:
    return Text(text, style="red")


def span(ms: int) -> str:
    """A length of time in its two largest units: `48 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""
    seconds = ms // 1000
    for unit, size, lower, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // part} {lower}"
    return f"{seconds} s"
