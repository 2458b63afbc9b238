"""The commands `stagebell tools …`."""

from __future__ import annotations

import typer

from stagebell.runtime.ops import options
from stagebell.runtime.ops.console import tell_failures
from stagebell.runtime.ops.options import settings_from

tools = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@tools.callback()
def tool_commands() -> None:
    """Look at the tools of agents."""


@tools.command()
def audit(
    setup: options.SetupTarget,
    strict: options.Strict = False,
    json: options.AsJson = False,
    traceback: options.Traceback = False,
) -> int:
    """List the tools of all agents, and what each declares of its effects.

    One agent of each type is made in memory; no tool is called. The exit code is 1 when an agent cannot be
    made; with --strict also when a tool does not say what its effects are.
    """
    from stagebell.runtime.ops.tools_audit import run_audit

    with tell_failures(settings_from().conceal, show_traceback=traceback):
        return run_audit(setup, strict=strict, as_json=json)
