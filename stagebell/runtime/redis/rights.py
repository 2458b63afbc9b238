"""Which commands a process needs, and whether the server lets it use them.

The server undoes nothing of a script that fails in the middle, as it does when an ACL forbids a command inside. So all
of them are tried on a scratch key, each time a connection is opened; a server that cannot write now shows it there too.
"""

from __future__ import annotations

import re

from stagebell.errors import ServerRefused
from stagebell.runtime.redis.lua_files import SCRIPTS
from stagebell.runtime.redis.scripts import Scripts

_CALL = re.compile(r"redis\.p?call\('([A-Z]+)'")


def _used_by(*names: str) -> set[str]:
    return {command for name in names for command in _CALL.findall(SCRIPTS[name].source)}


CLIENT_COMMANDS = tuple(
    sorted(
        _used_by("send", "withdraw", "end_call", "schedule", "unschedule")
        | {"HGET", "HGETALL", "TIME", "XRANGE", "XTRIM", "ZRANGE"}
    )
)
"""What a process that hosts no agents needs."""
OPERATOR_COMMANDS = tuple(sorted(_used_by("requeue", "requeue_event") | {"HGETALL", "TIME", "XRANGE", "ZRANGE"}))
"""What a process needs that looks after dead letters."""
WORKER_COMMANDS = tuple(sorted(_used_by(*SCRIPTS) | {"HGETALL", "XTRIM", "ZRANGE", "ZREM", *CLIENT_COMMANDS}))
"""What a process that hosts agents needs."""


async def check_rights(scripts: Scripts, commands: tuple[str, ...]) -> None:
    """See that the server runs these commands for us.

    Raises:
        ServerRefused: it does not; or it runs no script that writes, with its own code for why.
        ServerUnavailable: the connection ended.
    """
    refused = await scripts.probe(commands)
    if refused:
        names, why = ", ".join(refused), next(iter(refused.values()))
        grant = " ".join(f"+{name.lower()}" for name in refused)
        raise ServerRefused(
            f"the server refuses {names} to this user inside a script ({why}): grant {grant} on the keys ~sb:*",
            code="NOPERM",
        )
