"""The options and arguments of the commands, with what their help says.

Their defaults are told in the text: variables of the environment may change them, so the options have none.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagebell.runtime.ops.console import USAGE, CommandFailed

if TYPE_CHECKING:
    from stagebell.runtime.ops.settings import Settings


def settings_from(**given: Any) -> Settings:
    """The settings: those of the environment, replaced by those that are given and not None.

    Raises:
        CommandFailed: a value makes no sense.
    """
    from stagebell.runtime.ops.settings import Settings

    try:
        return Settings.from_environment().having(**given)
    except ValueError as error:
        raise CommandFailed(str(error), code=USAGE) from error


def settings_of(context: typer.Context) -> Settings:
    """The same, given by those options of a command that have the names of settings."""
    from stagebell.runtime.ops.settings import Settings

    names = {each.name for each in fields(Settings)}
    return settings_from(**{name: value for name, value in context.params.items() if name in names})


def _option(*names: str, metavar: str, help: str, variable: str = "", **more: Any) -> Any:
    text = f"{help} [{variable}]" if variable else help
    return typer.Option(*names, metavar=metavar, show_default=False, help=text, **more)


def _flag(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


Redis = Annotated[
    str | None,
    _option(
        metavar="URL",
        help="The server, as redis://, rediss:// or unix://; without one, the embedded server.",
        variable="STAGEBELL_REDIS",
    ),
]
Namespace = Annotated[
    str | None,
    _option("--namespace", "-n", metavar="NAME", help="Its namespace (default).", variable="STAGEBELL_NAMESPACE"),
]
Folder = Annotated[
    Path | None,
    _option(metavar="DIR", help="Folder of the embedded server (.stagebell).", variable="STAGEBELL_FOLDER"),
]
Traceback = Annotated[bool, _flag("--traceback", help="Show where an error came from.")]

# -- worker

SetupTarget = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:SETUP",
        help="An `async def SETUP(runtime: AgentRuntime)` that registers the agents.",
    ),
]
Processes = Annotated[
    int, _option("--processes", "-p", min=1, max=1024, metavar="N", help="How many worker processes (1).")
]
LogLevel = Annotated[
    str,
    _option(metavar="LEVEL", help="debug, info, warning or error (warning); the log goes to standard error."),
]
Lifeline = Annotated[int | None, typer.Option(hidden=True)]

# -- publish

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="type/source, such as orders/eu.")]
MessageType = Annotated[str, typer.Argument(metavar="TYPE", help="Name of the message type, such as OrderPlaced.")]
Data = Annotated[
    str | None,
    typer.Argument(
        metavar="JSON|-",
        show_default=False,
        help="The message. With -, or without it, standard input: JSON lines, each one a message.",
    ),
]
MessageId = Annotated[
    str | None,
    _option(metavar="ID", help="Id of the message that its agents see; of lines: ID-1, ID-2 and so on."),
]

# -- ps

Every = Annotated[bool, _flag("--all", "-a", help="All partitions, those with nothing in them too.")]
AsJson = Annotated[bool, _flag("--json", help="Everything as one JSON object.")]

# -- runs

AgentType = Annotated[str, typer.Argument(metavar="TYPE", help="The type of the agents.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run: <agent type>/<conversation>#<number>.")]
MostRuns = Annotated[int, _option("--limit", min=1, metavar="N", help="How many are shown at most (100).")]
Whole = Annotated[bool, _flag("--whole", help="Cut off no long text.")]

# -- state check

Limit = Annotated[
    int | None, _option(min=1, metavar="N", help="Try at most this many states of each agent type (all).")
]

# -- tools audit

Strict = Annotated[bool, _flag("--strict", help="Exit with 1 when a tool does not declare its effects.")]

# -- approvals

ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="Id of the request, as `list` shows it.")]
By = Annotated[str | None, _option("--by", metavar="NAME", help="Who decides (the user of this machine).")]
Reason = Annotated[str, _option("--reason", metavar="TEXT", help="Why; the agent is told.")]
Arguments = Annotated[
    str | None,
    _option(
        "--arguments", metavar="JSON", help="Run the call with these arguments instead: an object with all of them."
    ),
]

# -- dead-letters

LetterId = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter, as `list` shows it.")]
LetterIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", show_default=False, help="Ids, as `list` shows them.")
]
OfType = Annotated[str | None, _option("--type", "-t", metavar="TYPE", help="Only those of agents of this type.")]
MostLetters = Annotated[int, _option("--limit", min=1, metavar="N", help="How many are shown at most (100).")]
EveryLetter = Annotated[bool, _flag("--all", "-a", help="All of them.")]
Yes = Annotated[bool, _flag("--yes", "-y", help="Do not ask.")]
