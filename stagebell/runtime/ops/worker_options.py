"""The options of `stagebell worker` that are settings of its runtime, in the groups in which its help shows them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

DYING = "When a worker dies or stops"
CALLS = "Calls"
PRESSURE = "When more comes than can be handled"
SIZES = "Memory and sizes"


class GroupedCommand(TyperCommand):
    """A command whose plain help shows its options in the groups that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options without a group, and the groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            kind = "Arguments" if param.param_type_name == "argument" else "Options"
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(param, "rich_help_panel", None) or kind, []).append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _setting(name: str, group: str, metavar: str | None, help: str) -> Any:
    text = f"{help} [STAGEBELL_{name.upper()}]"
    return typer.Option(metavar=metavar, show_default=False, help=text, rich_help_panel=group)


def _seconds(name: str, group: str, help: str) -> Any:
    return _setting(name, group, "SECONDS", help)


def _number(name: str, group: str, help: str, metavar: str = "N") -> Any:
    return _setting(name, group, metavar, help)


Lease = Annotated[
    float | None, _seconds("lease", DYING, "Others take over the agents of a worker that is silent for this long (3).")
]
MaxStall = Annotated[
    float | None, _seconds("max_stall", DYING, "Others take over when its event loop is blocked for this long (60).")
]
StopGrace = Annotated[
    float | None, _seconds("stop_grace", DYING, "At a stop, running handlers get this long to end (5).")
]
CancelGrace = Annotated[
    float | None, _seconds("cancel_grace", CALLS, "A cancelled handler may go on for this long (0.5).")
]

UndeliverableAfter = Annotated[
    float | None,
    _seconds("undeliverable_after", CALLS, "A call is given up when nobody hosts the agent for this long (10)."),
]
CancelWhenCallerGone = Annotated[
    bool | None,
    _setting("cancel_when_caller_gone", CALLS, None, "Cancel calls of outside processes that have died (no)."),
]
MaxCallDepth = Annotated[int | None, _number("max_call_depth", CALLS, "How long a chain of calls may grow (32).")]
WarnAfter = Annotated[
    float | None, _seconds("warn_after", CALLS, "Report a turn that waits longer, with no call open (60).")
]

InboxLimit = Annotated[
    int | None,
    _number("inbox_limit", PRESSURE, "With so many messages an inbox takes no more from outside of agents (10000)."),
]
WhenFull = Annotated[
    str | None,
    _setting("when_full", PRESSURE, "wait|raise", "What a send to a full inbox does then (wait)."),
]
MaxRunningTurns = Annotated[
    int | None, _number("max_running_turns", PRESSURE, "Turns open at once in a worker (1000).")
]
ReadCredit = Annotated[
    int | None, _number("read_credit", PRESSURE, "Messages of one inbox that a worker holds in memory (256).")
]
ServerPatience = Annotated[
    float | None,
    _seconds(
        "server_patience",
        PRESSURE,
        "What outside code sends is given up when the server is away, or an inbox full, for this long (30).",
    ),
]

MaxAgentsInMemory = Annotated[
    int | None,
    _number("max_agents_in_memory", SIZES, "Agents that save state and are in memory; idle ones leave first (10000)."),
]
PassivateAfter = Annotated[
    float | None, _seconds("passivate_after", SIZES, "An agent that saves state leaves memory when idle (300).")
]
MaxMessageBytes = Annotated[int | None, _number("max_message_bytes", SIZES, "Largest message (1048576).", "BYTES")]
MaxStateBytes = Annotated[
    int | None, _number("max_state_bytes", SIZES, "Largest state of one agent (1048576).", "BYTES")
]
Partitions = Annotated[
    int | None,
    _number("partitions", SIZES, "Shares of the keys of an agent type that is new in the namespace (16)."),
]
