"""A tool runs, once or more; and what is done about an attempt whose outcome is not known.

              the answer was lost, or time ran out     an earlier attempt has left no result
──────────────────────────────────────────────────────────────────────────────────────────────
pure          tried again within its retries           run
idempotent    tried again within its retries           run, with the same key
status        the service is asked:  succeeded: that is the result · failed: an error that says so
              absent: it may run · processing: asked again for a while, then "outcome unknown"
once          outcome unknown                          outcome unknown
undeclared    an error                                 outcome unknown
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic

from pydantic import JsonValue

from stagebell.messages.tool_calls import ErrorCode, ToolResult
from stagebell.runtime.engine.deadlines import remaining
from stagebell.tools.containing import contained, in_thread
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import AskStatus, Status, Strategy
from stagebell.tools.ledger import Next, decide
from stagebell.tools.lifecycle import DepsT, Life
from stagebell.tools.policy import cleaned, code_of, is_unclear, text_of
from stagebell.tools.running import run_limited
from stagebell.tools.values import NotJson, as_json

_FIRST_PAUSE: Final = 0.05  # seconds; each further one is twice as long
_LONGEST_PAUSE: Final = 2.0

Retried = Callable[[Life[Any], str], None]


class Attempts(Generic[DepsT]):
    """Runs tools.

    Args:
        patience: seconds to wait for a service that says "processing".
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience

    async def run(self, life: Life[DepsT], retried: Retried) -> ToolResult:
        """Run the tool; again, while it may be, and has retries left.

        Args:
            life: the call, which every step before let pass.
            retried: is told of each failure that is tried again.

        Raises:
            asyncio.CancelledError: nobody wants the result any more.
        """
        attempt, tool = 1, life.found
        while True:
            context = self._context(life, attempt)
            life.attempts += 1
            try:
                return life.succeeded(await self._limited(life, context, life.valid.run(context)))
            except Exception as error:
                ended, may_retry = await self._judge_error(life, error)
            if not may_retry or attempt > tool.declares.retries:
                return ended
            retried(life, ended.text)
            await life.stop.sleep(pause(attempt))
            attempt += 1

    async def judge(self, life: Life[DepsT], attempts: int = 1) -> ToolResult | None:
        """What follows for a call that earlier attempts may have run; None: it may run now.

        Raises:
            asyncio.CancelledError: nobody wants the result any more.
        """
        strategy, ends = life.found.declares.strategy, time.monotonic() + self._patience
        status: Status | None = None
        asked = 0
        while True:
            kind, patient = status.kind if status else None, time.monotonic() < ends
            step = decide(strategy, attempts=attempts, result=False, status=kind, patient=patient)
            if step is Next.RUN:
                life.attempts *= kind != "absent"  # then none of them came so far
                return None
            if step not in (Next.ASK, Next.WAIT):
                return _settled(life, status)
            if step is Next.WAIT:
                await life.stop.sleep(pause(asked))
            status = await self._ask(life)
            asked += 1

    async def undo(self, life: Life[DepsT], value: JsonValue) -> ToolResult:
        """Run the tool's `compensate` for a call that returned `value`.

        Raises:
            asyncio.CancelledError: nobody wants the result any more.
        """
        compensate = life.found.declares.compensate
        assert compensate is not None
        context = self._context(life, 1)
        life.attempts += 1
        try:
            return life.succeeded(
                await self._limited(life, context, _called(compensate, life.arguments, value, context))
            )
        except Exception as error:
            return (await self._judge_error(life, error))[0]

    def _context(self, life: Life[DepsT], attempt: int) -> ToolContext[DepsT]:
        timeout, left = life.found.declares.timeout, remaining()
        if timeout is not None:
            left = timeout if left is None else min(timeout, left)
        return life.context(attempt, None if left is None else time.monotonic() + left)

    async def _limited(self, life: Life[DepsT], context: ToolContext[Any], work: Awaitable[Any]) -> JsonValue:
        """The value of the tool at work, as JSON."""
        tool, token = life.found, context.cancellation_token
        work = contained(work, context)
        result = await run_limited(work, tool.name, token=token, stop=life.stop, seconds=tool.declares.timeout)
        return as_json(result, f"the result of {tool.name!r}")

    async def _judge_error(self, life: Life[DepsT], error: Exception) -> tuple[ToolResult, bool]:
        """The result of a call whose tool raised this, and whether the tool may run again."""
        strategy, code, text = life.found.declares.strategy, code_of(error), text_of(error)
        if not is_unclear(error):
            return life.failed(code, text), code is ErrorCode.TRANSIENT
        if strategy is Strategy.STATUS:
            settled = await self.judge(life)
            return settled or life.failed(code, f"{text}; it had no effect"), settled is None
        if strategy is not Strategy.PURE:
            text += "; whether it had its effect is not known"
        if strategy is Strategy.ONCE:
            code = ErrorCode.OUTCOME_UNKNOWN
        return life.failed(code, text), strategy.may_run_again

    async def _ask(self, life: Life[DepsT]) -> Status:
        ask = life.found.declares.status
        assert ask is not None
        context = life.context()
        try:
            status: Status = await run_limited(
                contained(_said(ask, context), context),
                f"{life.found.name} (status)",
                token=context.cancellation_token,
                stop=life.stop,
                seconds=self._patience,
            )
        except Exception as error:
            return Status("processing", f"asking for it failed: {text_of(error)}")
        return status


def pause(attempt: int) -> float:
    """Seconds between an attempt and the next one."""
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)))


def _settled(life: Life[Any], status: Status | None) -> ToolResult:
    """The result of a call that is not run, by what the service said of it, if there was one to ask."""
    name = life.found.name
    if status is None:
        text = (
            f"an earlier attempt at this call of {name!r} left no result: it may have had its effect. "
            "It is not run again; look it up outside"
        )
        return life.failed(ErrorCode.OUTCOME_UNKNOWN, text)
    if status.kind == "failed":
        return life.failed(ErrorCode.BUSINESS, cleaned(f"{name!r} failed: {status.value or 'no reason given'}"))
    if status.kind == "processing":
        why = status.value or "it is still being processed"
        text = f"what became of this call of {name!r} is not known: {why}"
        return life.failed(ErrorCode.OUTCOME_UNKNOWN, cleaned(text))
    try:
        return life.succeeded(as_json(status.value, f"the value of the status of {name!r}"))
    except NotJson as error:
        return life.failed(code_of(error), text_of(error))


async def _said(ask: AskStatus, context: ToolContext[Any]) -> Status:
    return await ask(context)


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that may be async, or may block."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    result = await in_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result
