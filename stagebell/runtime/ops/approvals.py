"""`stagebell approvals`: what waits for a person, as a table or as JSON, and what the person decides."""

from __future__ import annotations

import asyncio
import getpass
import json
import sys
import time
from typing import Any, cast

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from stagebell.errors import Undeliverable
from stagebell.messages.envelope import timestamp
from stagebell.messages.reasons import shorten
from stagebell.runtime.ops.console import USAGE, CommandFailed, give
from stagebell.runtime.ops.reading import WIDTH_OF_A_PIPE, server_to_read
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.tables import records, span
from stagebell.runtime.redis.publisher import Publisher
from stagebell.tools.approval_messages import ApprovalDecision
from stagebell.tools.approvals import Approvals, PendingApproval

_LONGEST = 600
_NO_WORKER_AFTER = 1.0  # seconds without a live one


def run_list(settings: Settings, *, as_json: bool) -> None:
    """Show what waits.

    Raises:
        StagebellError: the server cannot be reached, or refuses.
    """
    found = asyncio.run(_read(settings))
    if as_json:
        give(json.dumps({"approvals": [_to_json(each) for each in found]}, indent=2))
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
    console.print(Text(f"approvals that wait in namespace {settings.namespace} at {settings.server}: {len(found):,}"))
    records(console, map(_record, found))


def run_decide(
    settings: Settings,
    *,
    id: str,
    approved: bool,
    arguments: dict[str, JsonValue] | None,
    reason: str,
    by: str | None,
) -> None:
    """Decide on one request.

    Raises:
        UnknownApproval: nobody has asked for it.
        AlreadyDecided: somebody has decided before.
        CommandFailed: the agent that asked is gone.
    """
    verdict: Any = "reject" if not approved else "approve" if arguments is None else "edit"
    who = _user() if by is None else by
    decision = ApprovalDecision(id=id, verdict=verdict, arguments=arguments, reason=reason, by=who)
    told = "approved" if approved else "rejected"
    try:
        applied = asyncio.run(_decide(settings, decision))
    except Undeliverable as error:
        raise CommandFailed(f"nobody waits for approvals in namespace {settings.namespace}: {error}") from error
    if applied:
        give(f"{told} {id}")
    else:
        give(f"{told} {id}: no worker is there, the decision is kept and takes effect when one starts")


def parse_arguments(text: str) -> dict[str, JsonValue]:
    """The arguments that a person gives.

    Raises:
        CommandFailed: they are no JSON object.
    """
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandFailed(f"--arguments is no JSON: {error}", code=USAGE) from error
    if not isinstance(found, dict):
        raise CommandFailed(
            '--arguments must be a JSON object with all arguments, such as {"order": "A7", "cents": 500}', code=USAGE
        )
    return cast("dict[str, JsonValue]", found)


async def _read(settings: Settings) -> list[PendingApproval]:
    async with server_to_read(settings) as url, Publisher(url, namespace=settings.namespace) as publisher:
        return await Approvals(publisher).list()


async def _decide(settings: Settings, decision: ApprovalDecision) -> bool:
    async with (
        server_to_read(settings) as url,
        Publisher(url, namespace=settings.namespace, undeliverable_after=_NO_WORKER_AFTER) as publisher,
    ):
        return await Approvals(publisher).decide(decision)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for it
        return ""


def _to_json(pending: PendingApproval) -> dict[str, Any]:
    request = pending.request
    return {
        "id": request.id,
        "agent": request.agent,
        "run_id": request.run_id,
        "call_id": request.call.id,
        "tool": request.call.name,
        "arguments": _parsed(request.call.arguments),
        "reason": request.reason,
        "asked": timestamp(pending.asked_at),
        "expires": None if request.expires_at is None else timestamp(request.expires_at),
    }


def _parsed(arguments: str) -> object:
    """The arguments as JSON, if the model wrote JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _record(pending: PendingApproval) -> tuple[list[str], list[str]]:
    request, now = pending.request, int(time.time() * 1000)
    expires = [] if request.expires_at is None else [f"expires in {span(max(0, request.expires_at - now))}"]
    asked = f"asked {span(max(0, now - pending.asked_at))} ago"
    reason = [f"reason: {shorten(request.reason, _LONGEST)}"] if request.reason else []
    return [request.id, request.agent, asked, *expires], [
        f"{request.call.name} {shorten(request.call.arguments, _LONGEST)}",
        *reason,
    ]
