"""The commands `stagebell dead-letters …`."""

from __future__ import annotations

import typer

from stagebell.runtime.ops import options
from stagebell.runtime.ops.console import USAGE, CommandFailed, tell_failures
from stagebell.runtime.ops.options import settings_from

letters = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@letters.callback()
def dead_letters() -> None:
    """Look at messages that were set aside, run them again, or delete them."""


@letters.command("list")
def list_letters(
    type: options.OfType = None,
    limit: options.MostLetters = 100,
    every: options.EveryLetter = False,
    json: options.AsJson = False,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Show the newest dead letters."""
    from stagebell.runtime.ops.dead_letters import run_list

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_list(settings, type=type, limit=None if every else limit, as_json=json)


@letters.command()
def show(
    id: options.LetterId,
    json: options.AsJson = False,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> None:
    """Show one dead letter, with its message and traceback."""
    from stagebell.runtime.ops.dead_letters import run_show

    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        run_show(settings, id=id, as_json=json)


@letters.command()
def requeue(
    ids: options.LetterIds = None,
    every: options.EveryLetter = False,
    type: options.OfType = None,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> int:
    """Let messages be handled again, as if they had not been tried.

    The exit code is 1 when one of them could not be requeued.
    """
    from stagebell.runtime.ops.dead_letters import run_requeue

    _check_chosen(ids, every, type)
    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        return run_requeue(settings, ids=ids or (), type=type)


@letters.command()
def discard(
    ids: options.LetterIds = None,
    every: options.EveryLetter = False,
    type: options.OfType = None,
    yes: options.Yes = False,
    redis: options.Redis = None,
    namespace: options.Namespace = None,
    folder: options.Folder = None,
    traceback: options.Traceback = False,
) -> int:
    """Delete dead letters, and their messages with them.

    The exit code is 1 when one of them was not there.
    """
    from stagebell.runtime.ops.dead_letters import run_discard

    _check_chosen(ids, every, type)
    settings = settings_from(redis=redis, namespace=namespace, folder=folder)
    with tell_failures(settings.conceal, show_traceback=traceback):
        return run_discard(settings, ids=ids or (), type=type, sure=yes)


def _check_chosen(ids: list[str] | None, every: bool, type: str | None) -> None:
    if bool(ids) == every:
        raise CommandFailed("name the dead letters by their ids, or give --all for all of them", code=USAGE)
    if ids and type:
        raise CommandFailed("--type goes with --all", code=USAGE)
