"""Broken scripts: each takes one check out of one script, or turns one around. The simulation must notice.

A mutation is a text to find and a text to put in its place; one that is not found any more is an error, so that the
list keeps up with the scripts. Some are masked by another check, or by a rule of the worker: these name the test that
sees them instead.
"""

from __future__ import annotations

from typing import NamedTuple

from stagebell.runtime.redis.lua_files import SCRIPTS


class Mutation(NamedTuple):
    """`script` with `old` replaced by `new`; `seen_by`: the test that notices it when the simulation cannot."""

    script: str
    old: str
    new: str
    seen_by: str = ""


MUTATIONS: dict[str, Mutation] = {
    "commit-no-fence": Mutation(
        "commit", "if not right then return refuse({'FENCED'}) end", "right = right or 'owner'"
    ),
}


def sources(name: str) -> dict[str, str]:
    """The scripts that a mutation changes, by name.

    Raises:
        LookupError: the text that it changes is not in the script any more.
    """
    mutation = MUTATIONS[name]
    source = SCRIPTS[mutation.script].source
    if mutation.old not in source:
        raise LookupError(f"mutation {name} does not apply: {mutation.script}.lua has no {mutation.old!r}")
    return {mutation.script: source.replace(mutation.old, mutation.new)}
