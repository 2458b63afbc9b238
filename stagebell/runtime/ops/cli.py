"""The command `stagebell`. Each command imports what it needs when it runs, so that help is there at once."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from stagebell.runtime.ops import options
from stagebell.runtime.ops import worker_options as tuning
from stagebell.runtime.ops.approvals_cli import approvals
from stagebell.runtime.ops.console import USAGE, CommandFailed, give, say_error, tell_failures
from stagebell.runtime.ops.dead_letters_cli import letters
from stagebell.runtime.ops.options import settings_from, settings_of
from stagebell.runtime.ops.runs_cli import runs
from stagebell.runtime.ops.tools_cli import tools

if TYPE_CHECKING:
    from stagebell.runtime.ops.settings import Settings

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,  # plain help is shorter, and there sooner
    pretty_exceptions_enable=False,  # they would show local variables, and with them the server's password
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> NoReturn:
    """The command `stagebell`; ends the process with its exit code.

    Args:
        arguments: by default those of the process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(_or_help(given), prog_name="stagebell", standalone_mode=False)
    except CommandFailed as failed:
        say_error(str(failed))
        code = failed.code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        # The parser's own errors; its classes are not the same in all versions of typer.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        say_error(f"{str(message()).rstrip('.')} (see: stagebell {_command_of(given)}--help)")
        code = USAGE
    sys.exit(code or 0)


def _or_help(arguments: list[str]) -> list[str]:
    groups = [[group.name] for group in app.registered_groups]
    return [*arguments, "--help"] if not arguments or arguments in groups else arguments


def _command_of(arguments: list[str]) -> str:
    """The part of the arguments that names a command, with a space behind it."""
    level, words = app, ""
    for word in arguments:
        group = next((group for group in level.registered_groups if group.name == word), None)
        if group is not None and group.typer_instance is not None:
            level, words = group.typer_instance, f"{words}{word} "
            continue
        known = [command.name or getattr(command.callback, "__name__", "") for command in level.registered_commands]
        return f"{words}{word} " if word in known else words
    return words


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            give(f"stagebell {metadata.version('stagebell')}")
        except metadata.PackageNotFoundError:
            give("stagebell, not installed as a package")
        raise typer.Exit


@app.callback()
def stagebell(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run and watch agents over one Redis or Valkey server."""


@app.command(cls=tuning.GroupedCommand)
def worker(
    context: typer.Context,
    setup: options.SetupTarget,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    processes: options.Processes = 1,
    folder: options.Folder = None,
    lease: tuning.Lease = None,
    max_stall: tuning.MaxStall = None,
    stop_grace: tuning.StopGrace = None,
    undeliverable_after: tuning.UndeliverableAfter = None,
    cancel_grace: tuning.CancelGrace = None,
    cancel_when_caller_gone: tuning.CancelWhenCallerGone = None,
    max_call_depth: tuning.MaxCallDepth = None,
    warn_after: tuning.WarnAfter = None,
    inbox_limit: tuning.InboxLimit = None,
    when_full: tuning.WhenFull = None,
    max_running_turns: tuning.MaxRunningTurns = None,
    read_credit: tuning.ReadCredit = None,
    server_patience: tuning.ServerPatience = None,
    max_agents_in_memory: tuning.MaxAgentsInMemory = None,
    passivate_after: tuning.PassivateAfter = None,
    max_message_bytes: tuning.MaxMessageBytes = None,
    max_state_bytes: tuning.MaxStateBytes = None,
    partitions: tuning.Partitions = None,
    log_level: options.LogLevel = "warning",
    traceback: options.Traceback = False,
    lifeline: options.Lifeline = None,
) -> int:
    """Host agents until SIGTERM or Ctrl-C.

    Prints a line that begins with "ready" when it takes messages. Of several processes, one that dies is
    started again. The first signal stops in order, a second one at once.
    """
    from stagebell.runtime.ops.logs import log_to_stderr

    log_to_stderr(log_level)
    given = settings_of(context)
    with tell_failures(given.conceal, show_traceback=traceback):
        if lifeline is not None:
            return _work_for_supervisor(setup, given, lifeline, traceback)
        if processes > 1:
            _supervise(setup, given, processes, log_level, traceback)
        else:
            _work(setup, given)
    return 0


def _work(setup: str, settings: Settings) -> None:
    from stagebell.runtime.ops.worker import run_worker

    run_worker(setup, settings)


def _work_for_supervisor(setup: str, settings: Settings, descriptor: int, traceback: bool) -> int:
    from stagebell.runtime.ops.lifeline import Lifeline
    from stagebell.runtime.ops.worker import run_supervised_worker

    return run_supervised_worker(setup, settings, Lifeline(descriptor), show_traceback=traceback)


def _supervise(setup: str, settings: Settings, processes: int, log_level: str, traceback: bool) -> None:
    from stagebell.runtime.ops.setups import split_target
    from stagebell.runtime.ops.supervisor import run_supervisor

    split_target(setup)
    more = ["--log-level", log_level, *(["--traceback"] if traceback else [])]
    run_supervisor(setup, settings, processes, more)


@app.command()
def publish(
    topic: options.Topic,
    type: options.MessageType,
    data: options.Data = None,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    id: options.MessageId = None,
    traceback: options.Traceback = False,
) -> int:
    """Publish JSON messages to a topic.

    They are stored when this ends; a worker hands them to the agents that subscribe to the topic. A line
    that is not JSON is named and left out, and the exit code is then 1.
    """
    from stagebell.runtime.ops.publish import run_publish

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        return run_publish(settings, topic=topic, type=type, data=data, id=id or "")


@app.command()
def ps(
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    every: options.Every = False,
    json: options.AsJson = False,
    traceback: options.Traceback = False,
) -> None:
    """Show workers, agent types, and what waits.

    It asks the server, so it works without a worker too.
    """
    from stagebell.runtime.ops.inspector import run_ps

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_ps(settings, every_partition=every, as_json=json)


app.add_typer(approvals, name="approvals", help="Calls of tools that wait for a person.")
app.add_typer(letters, name="dead-letters", help="Messages that were set aside.")
app.add_typer(runs, name="run", help="What the runs of agents did.")
app.add_typer(tools, name="tools", help="What the tools of agents declare.")
state = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(state, name="state", help="What agents have stored.")


@state.callback()
def states() -> None:
    """What agents have stored."""


@state.command()
def check(
    setup: options.SetupTarget,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    limit: options.Limit = None,
    traceback: options.Traceback = False,
) -> int:
    """Before a deploy: try to load every stored state into the agents of this program.

    Nothing is hosted and nothing is written. The exit code is 1 when a state would not be loaded.
    """
    from stagebell.runtime.ops.state_check import run_state_check

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        return run_state_check(setup, settings, limit=limit)
