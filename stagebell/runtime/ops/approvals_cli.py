"""The commands `stagebell approvals …`."""

from __future__ import annotations

import typer

from stagebell.runtime.ops import options
from stagebell.runtime.ops.console import tell_failures
from stagebell.runtime.ops.options import settings_from

approvals = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@approvals.callback()
def waiting() -> None:
    """Look at calls of tools that wait for a person, and decide."""


@approvals.command("list")
def list_approvals(
    json: options.AsJson = False,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Show what waits, the oldest first. It works without a worker too."""
    from stagebell.runtime.ops.approvals import run_list

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_list(settings, as_json=json)


@approvals.command()
def approve(
    id: options.ApprovalId,
    arguments: options.Arguments = None,
    reason: options.Reason = "",
    by: options.By = None,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Let a call run. Without a worker the decision is kept until one starts."""
    from stagebell.runtime.ops.approvals import parse_arguments, run_decide

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        edited = None if arguments is None else parse_arguments(arguments)
        run_decide(settings, id=id, approved=True, arguments=edited, reason=reason, by=by)


@approvals.command()
def reject(
    id: options.ApprovalId,
    reason: options.Reason = "",
    by: options.By = None,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Let a call not run. Without a worker the decision is kept until one starts."""
    from stagebell.runtime.ops.approvals import run_decide

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_decide(settings, id=id, approved=False, arguments=None, reason=reason, by=by)
