"""What is noted down around each call of a tool, and what follows from it when the call comes up again.

    open: "intent" ──▶ the tool runs ──▶ close: "result" ──▶ the turn's commit ends both

A worker may die at any of these arrows; then the turn runs again, elsewhere. What holds at all times
    - The body of a tool that is not pure runs only after its intent is in the turn's journal, by a worker that had the
      right to the turn at that moment.
    - An intent without a result says that the call may have been made, and no more. What is done about it is the
      tool's strategy (`declared`): `decide` never lets a call run a second time whose tool does not allow that.
    - The result that was noted first is the one that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from stagebell.errors import MessageTooLarge
from stagebell.messages.tool_calls import ErrorCode, ToolResult
from stagebell.runtime.engine.journal import record, recorded
from stagebell.tools.declared import StatusKind, Strategy


class Next(StrEnum):
    """What is done with a call now."""

    RUN = "run"
    ANSWER = "answer"
    ASK = "ask"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    WAIT = "wait"
    UNKNOWN = "unknown"


def decide(
    strategy: Strategy, *, attempts: int, result: bool, status: StatusKind | None = None, patient: bool = True
) -> Next:
    """What follows from what is known of a call.

    Args:
        strategy: of its tool.
        attempts: how many earlier ones have noted that they were about to run it.
        result: one of them has noted what came of it.
        status: what the service outside says of it; None when it was not asked yet.
        patient: there is time to ask again.

    Returns:
        RUN: the tool's body, for the first time or because a second time does no harm. ANSWER: the noted result. ASK:
        the service, by the call's key. SUCCEEDED and FAILED: as the service says. WAIT: ask again later. UNKNOWN: it
        may have had its effect, and nobody can tell.
    """
    if result:
        return Next.ANSWER
    if not attempts or strategy.may_run_again:
        return Next.RUN
    if strategy is not Strategy.STATUS:
        return Next.UNKNOWN
    match status:
        case None:
            return Next.ASK
        case "succeeded":
            return Next.SUCCEEDED
        case "failed":
            return Next.FAILED
        case "absent":
            return Next.RUN
        case "processing":
            return Next.WAIT if patient else Next.UNKNOWN


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier attempts at a call have left.

    Attributes:
        attempts: how many have noted that they were about to run it.
        result: what came of it, if that was noted.
    """

    attempts: int = 0
    result: ToolResult | None = None


class Ledger(Protocol):
    """Where calls are noted down before and after they run."""

    async def open(self, key: str) -> Earlier:
        """Note durably that the call of this idempotency key is about to run; tells what was there before.

        A call that has a result is not noted again.
        """
        ...

    async def close(self, key: str, result: ToolResult) -> ToolResult:
        """Note durably what came of it; returns the result that counts, the one noted first."""
        ...

    async def look(self, key: str) -> Earlier:
        """What is noted of a call; notes nothing. `attempts` is 1 for any number of them."""
        ...


class TurnLedger:
    """Notes in the journal of the turn that is under way: durable and fenced on a server, in memory without one.

    Both raise what `record` raises: `OutsideTurn` where no message is being handled, `CancelledError` when the turn is
    not ours any more, `ServerUnavailable`.
    """

    async def open(self, key: str) -> Earlier:
        """As `Ledger.open`."""
        attempts = 0
        while await record(_intent(key, attempts), "") is not None:
            if not attempts and (known := await recorded(_result(key))) is not None:
                return Earlier(1, ToolResult.model_validate_json(known))
            attempts += 1
        return Earlier(attempts)

    async def close(self, key: str, result: ToolResult) -> ToolResult:
        """As `Ledger.close`. A result that is larger than a message may be gives way to an error that says so."""
        try:
            known = await record(_result(key), result.model_dump_json())
        except MessageTooLarge as error:
            text = f"the tool ran, and its result has {error.size:,} bytes, the limit is {error.limit:,}: return less"
            update = {"value": text, "is_error": True, "code": ErrorCode.BUSINESS}
            result = result.model_copy(update=update)
            known = await record(_result(key), result.model_dump_json())
        return result if known is None else ToolResult.model_validate_json(known)

    async def look(self, key: str) -> Earlier:
        """As `Ledger.look`."""
        if (known := await recorded(_result(key))) is not None:
            return Earlier(1, ToolResult.model_validate_json(known))
        return Earlier(int(await recorded(_intent(key, 0)) is not None))


def _intent(key: str, attempts: int) -> str:
    return f"intent:{attempts + 1}:{key}"


def _result(key: str) -> str:
    return f"result:{key}"
