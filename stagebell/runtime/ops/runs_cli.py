"""The commands `stagebell run …`."""

from __future__ import annotations

import typer

from stagebell.runtime.ops import options
from stagebell.runtime.ops.console import tell_failures
from stagebell.runtime.ops.options import settings_from

runs = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@runs.callback()
def run() -> None:
    """Look at the runs of agents; it works without a worker too. Secrets are hidden."""


@runs.command("list")
def list_runs(
    type: options.AgentType,
    limit: options.MostRuns = 100,
    json: options.AsJson = False,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Show the runs of the agents of one type, the newest first."""
    from stagebell.runtime.ops.runs import run_list

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_list(settings, type=type, limit=limit, as_json=json)


@runs.command()
def show(
    id: options.RunId,
    whole: options.Whole = False,
    json: options.AsJson = False,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Show what a run did, round by round."""
    from stagebell.runtime.ops.runs import run_show

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_show(settings, run_id=id, whole=whole, as_json=json)


@runs.command()
def explain(
    id: options.RunId,
    json: options.AsJson = False,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Show why a run went as it did: the model's answers, what did not fit, its state, what was done, why it ended."""
    from stagebell.runtime.ops.runs import run_explain

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_explain(settings, run_id=id, as_json=json)
