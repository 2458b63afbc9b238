"""Broken scripts: each mutation takes one check out of a script, or one effect, or turns it around.

A mutation is a text to find and a text to put in its place; one that is not found any more is an error, so that the
list keeps up with the scripts. Either the simulation notices it, or, where another check or a rule of the worker makes
up for it, the test that it names.
"""

from __future__ import annotations

from stagebell.runtime.redis.lua_files import SCRIPTS
from tests.simulation import mutations_of_rights as rights
from tests.simulation import mutations_of_turns as turns
from tests.simulation.mutation import EVERY, Mutation

MUTATIONS: dict[str, Mutation] = {
    **rights.FENCE,
    **rights.INPUT,
    **turns.PROGRESS,
    **turns.JOINT,
    **turns.REGISTRY,
    **turns.JOURNAL,
    **turns.RECORDS,
    **turns.SAVEPOINTS,
    **rights.OWNERSHIP,
}


def sources(name: str) -> dict[str, str]:
    """The scripts that a mutation changes, by name.

    Raises:
        LookupError: the text that it changes is not in the script any more.
    """
    mutation = MUTATIONS[name]
    scripts = SCRIPTS.values() if mutation.script == EVERY else [SCRIPTS[mutation.script]]
    changed = {s.name: s.source.replace(mutation.old, mutation.new) for s in scripts if mutation.old in s.source}
    if not changed:
        raise LookupError(f"mutation {name} does not apply: {mutation.script}.lua has no {mutation.old!r}")
    return changed
