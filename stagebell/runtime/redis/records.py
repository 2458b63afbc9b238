"""What a turn notes down in its journal on the server; see `engine.journal`."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING

from stagebell.errors import OutsideTurn, ServerRefused
from stagebell.messages.codec import check_size
from stagebell.runtime.engine.turn import Turn
from stagebell.runtime.redis.storage import Stored

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services
    from stagebell.runtime.redis.turns import DurableTurn


async def keep_record(services: Services, own: DurableTurn, turn: Turn, name: str, value: str) -> str | None:
    """Keep a value with the turn; see `engine.journal.record`."""
    check_size(f"record {name}", len(name.encode()) + len(value.encode()), services.settings.max_message_bytes)
    await after_earlier_commits(turn)
    _check(own, turn)
    own.ensure_begun()
    nonce = f"{services.worker}.{next(services.numbers)}"
    replies, savepoints = own.known_of_journal
    reply = await services.link.submit(
        lambda scripts: scripts.record(
            own.fence,
            name,
            value,
            nonce=nonce,
            known_replies=replies,
            known_savepoints=savepoints,
            version=own.version,
        )
    )
    match reply.status:
        case "KEPT":
            return None
        case "KNOWN":
            return reply.value
        case "BADKEY":
            raise ServerRefused(f"record {name!r} of {own.agent} was refused: {reply.detail} has a wrong type")
        case "DUP" if not own.takes_effects:
            raise OutsideTurn("record")
        case _:
            own.lost_its_ground(fenced=reply.status == "FENCED")
            raise CancelledError(f"the turn of {own.agent} is not ours any more ({reply.status})")


def _check(own: DurableTurn, turn: Turn) -> None:
    if own.abandoned:
        raise CancelledError(f"the turn of {own.agent} is not ours any more")
    if not own.takes_effects:
        raise OutsideTurn("record")
    if turn.cancelled:
        raise CancelledError(f"the turn of {own.agent} is cancelled, and what it would record is not needed any more")


async def after_earlier_commits(turn: Turn | None) -> None:
    """Nothing may leave a turn on the ground of a state whose commit may still be refused."""
    stored = turn.activation.stored if turn is not None else None
    if isinstance(stored, Stored):
        await stored.settled()
