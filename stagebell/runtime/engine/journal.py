"""What a turn notes down as it goes, so that the next attempt at it knows how far this one came.

    record("intent:7", …) ──▶ an effect outside ──▶ record("result:7", …) ──▶ the turn's commit ends both

What holds at all times
    - A record is part of its turn: it outlives the worker that wrote it, and ends with the turn's commit or failure.
    - The first value under a name stays.
    - Only whoever has the right to the turn writes: a worker that was taken for dead gets `CancelledError`.
    - A nested turn has records of its own.

On `RedisRuntime` they lie in the turn's journal in the server. A turn in memory (`LocalRuntime`, process-bound agents)
is never tried again, so its records are only as good as its process.
"""

from __future__ import annotations

from stagebell.errors import OutsideTurn
from stagebell.runtime.engine.turn import Turn, current_turn


async def record(name: str, value: str) -> str | None:
    """Keep a value with the turn whose handler calls this, durably before it returns.

    Args:
        name: tells it from the turn's other records.
        value: any text; name and value together may be as long as a message.

    Returns:
        None when it was written now; else the value that is there already. An earlier attempt at this turn wrote it, or
        this one did.

    Raises:
        OutsideTurn: no message is being handled, or its turn has ended.
        MessageTooLarge: it is larger than the limit of a message.
        ServerUnavailable: the server was away for too long.
        asyncio.CancelledError: the turn was cancelled, or belongs to another worker now.
    """
    turn = _under_way("record")
    if turn.receipt is None or turn.activation.hosted.process_bound:
        return turn.note(name, value)
    return await turn.receipt.record(turn, name, value)


async def recorded(name: str) -> str | None:
    """What is kept under this name with the turn whose handler calls this; None: nothing.

    It says nothing of who has the right to the turn: what is done next must begin with a `record`, or need no right.

    Raises:
        OutsideTurn: no message is being handled, or its turn has ended.
        ServerUnavailable: the server was away for too long.
    """
    turn = _under_way("recorded")
    if turn.receipt is None or turn.activation.hosted.process_bound:
        return None if turn.records is None else turn.records.get(name)
    return await turn.receipt.recorded(name)


def _under_way(what: str) -> Turn:
    turn = current_turn.get()
    if turn is None or turn.closed:
        raise OutsideTurn(what)
    return turn
