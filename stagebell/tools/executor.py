"""Runs calls of tools: every call ends in a result, whatever the model wrote and whatever the tool does.

The steps and their order are in `lifecycle`. What holds at all times
    - Nothing is reached but the tools of the toolset.
    - The body of a tool runs only after every step before it let the call pass.
    - A tool that is not pure runs only after its intent was noted, and its result is noted before it is told.
    - A call that may have run before is judged by its tool's strategy, see `declared`; it is never run again blindly.
    - `run` raises nothing but `CancelledError`, what the ledger raises when the turn is over, and the
      `KeyboardInterrupt` of a person.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, cast

from autogen_core import CancellationToken

from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.tools.attempts import Attempts
from stagebell.tools.checks import approve, authorise, check_idempotency, parse, validate
from stagebell.tools.conflicts import Access, groups
from stagebell.tools.containing import as_error, passes
from stagebell.tools.declared import Declared, Strategy
from stagebell.tools.guardrails import Guardrail, Refuse, Rewrite, Subject, judge
from stagebell.tools.ledger import Earlier, Ledger
from stagebell.tools.lifecycle import (
    Decided,
    DepsT,
    Ended,
    Life,
    NeedsApproval,
    Step,
    ToolEvent,
    count,
    event_of,
    harmless,
)
from stagebell.tools.policy import cleaned, text_of
from stagebell.tools.rates import Window
from stagebell.tools.running import Stop
from stagebell.tools.tool import TypedTool
from stagebell.tools.toolset import Toolset
from stagebell.tools.values import as_json

_ASKED_ONCE: Final = (Step.GUARDRAIL, Step.AUTHORISE, Step.RATE_LIMIT, Step.APPROVE)

_Act: TypeAlias = Callable[[Life[DepsT]], Ended | Coroutine[Any, Any, Ended]]
_Steps: TypeAlias = tuple[tuple[Step, _Act[DepsT]], ...]

NOTHING_SEEN: Final[Mapping[str, ToolResult]] = MappingProxyType({})


class NoLedger:
    """Notes nothing: for calls outside of turns, whose results nobody could find again."""

    async def open(self, key: str) -> Earlier:
        """There was nothing before."""
        return Earlier()

    async def close(self, key: str, result: ToolResult) -> ToolResult:
        """It counts."""
        return result

    async def look(self, key: str) -> Earlier:
        """Nothing is noted."""
        return Earlier()


class Executor(Generic[DepsT]):
    """Runs calls of the tools of one toolset.

    Args:
        tools: the tools there are.
        guardrails: judge arguments and results of calls; those at other places are left to others.
        ledger: where intents and results are noted.
        sink: is told of every step that is over; what it raises is logged.
        patience: seconds to wait for a service that says "processing" of a call.
    """

    def __init__(
        self,
        tools: Toolset[DepsT],
        *,
        guardrails: Sequence[Guardrail] = (),
        ledger: Ledger | None = None,
        sink: Callable[[ToolEvent], None] | None = None,
        patience: float = 30.0,
    ) -> None:
        self.tools = tools
        self._guardrails = tuple(guardrails)
        self._ledger: Ledger = ledger or NoLedger()
        self._sink = None if sink is None else harmless(sink)
        self._attempts = Attempts[DepsT](patience)
        self._windows: dict[str, Window] = {}
        self._steps: _Steps[DepsT] = (
            (Step.PARSE, parse),
            (Step.FIND, self._find),
            (Step.VALIDATE, validate),
            (Step.GUARDRAIL, self._guard_call),
            (Step.AUTHORISE, authorise),
            (Step.RATE_LIMIT, self._limit_rate),
            (Step.IDEMPOTENCY, check_idempotency),
            (Step.APPROVE, approve),
            (Step.INTENT, self._intend),
            (Step.EXECUTE, self._execute),
            (Step.RECORD, self._record),
            (Step.GUARD_RESULT, self._guard_result),
        )
        self._needed: dict[str, tuple[TypedTool[DepsT], _Steps[DepsT]]] = {}

    async def run(
        self,
        call: ToolCall,
        *,
        run_id: str,
        deps: DepsT,
        token: CancellationToken | None = None,
        decided: Decided | None = None,
        seen: Mapping[str, ToolResult] = NOTHING_SEEN,
        unsure: bool = False,
    ) -> ToolResult | NeedsApproval:
        """Run one call.

        Args:
            call: what the model asks for.
            run_id: of the run; with the call's id it makes the idempotency key.
            deps: what tools with a context get.
            token: cancels the call, and the tool.
            decided: what a person said of it.
            seen: results that are known already, by the ids of their calls.
            unsure: an attempt that nobody noted may have run it.

        Returns:
            What came of it; or that a person has to be asked first.

        Raises:
            asyncio.CancelledError: the token was cancelled, or the caller's task.
        """
        life = Life(call, run_id, deps, Stop(token), decided, seen.get(call.id), unsure)
        if not self.tools.is_ready:
            life.unlisted = await self._prepare()
        ended = await self._take(self._steps_for(life), life) or life.result
        assert ended is not None
        return self._answered(life, ended)

    async def compensate(
        self,
        call: ToolCall,
        result: ToolResult,
        *,
        run_id: str,
        deps: DepsT,
        token: CancellationToken | None = None,
        unsure: bool = False,
    ) -> ToolResult | None:
        """Undo a call that succeeded, as a call of its own: with intent, record and a key that ends in "~undo".

        Args:
            call: which one, with the arguments that it ran with.
            result: what came of it.
            run_id: of its run.
            deps: what the tool's `compensate` gets in its context.
            token: cancels it.
            unsure: an attempt that nobody noted may have undone it.

        Returns:
            What came of the undoing; None when there is nothing to undo: the call had no value, or its tool no
            `compensate`.

        Raises:
            asyncio.CancelledError: the token was cancelled, or the caller's task.
        """
        tool = self.tools.find(call.name)
        if tool is None or tool.declares.compensate is None or result.is_error:
            return None
        undo = call.model_copy(update={"id": f"{call.id}~undo"})
        life = Life(undo, run_id, deps, Stop(token), None, None, unsure, tool=tool)
        ended = parse(life) or validate(life)
        if ended is None:
            ended = await self._intend(life)
            self._tell(life, Step.INTENT, ended)
        if ended is None:
            life.result = await self._attempts.undo(life, result.value)
            self._tell(life, Step.EXECUTE, None)
            ended = await self._record(life) or life.result
            self._tell(life, Step.RECORD, None)
        return cast("ToolResult", self._answered(life, ended))

    def groups(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Calls in groups that run one after the other; those of one group may overlap."""
        if len(calls) == 1:
            return [[*calls]]
        return [[calls[at] for at in group] for group in groups([self.access(call.name) for call in calls])]

    def access(self, name: str) -> Access:
        """What calls of a tool touch; one that does not exist touches nothing."""
        tool = self.tools.find(name)
        return Access(alone=not self.tools.is_ready) if tool is None else Access.of(tool.declares)

    async def _prepare(self, *, anew: bool = False) -> str:
        """Let the workbenches list their tools; why that failed, if it did."""
        try:
            await self.tools.ready(anew=anew)
        except BaseException as error:
            if passes(error):
                raise
            return text_of(as_error(error))
        return ""

    async def _take(self, steps: _Steps[DepsT], life: Life[DepsT]) -> Ended:
        """Take steps until one of them ends the call's life, or the call is cancelled while one waits."""
        life.stop.check()
        for step, act in steps:
            try:
                acting = act(life)
                if acting is None or isinstance(acting, ToolResult | NeedsApproval):
                    ended = acting
                else:
                    ended = await acting
                    life.stop.check()
            except BaseException as error:
                if passes(error) or step in (Step.INTENT, Step.RECORD):
                    raise  # or the turn is not ours any more, or the store is away
                ended = life.failed(ErrorCode.FATAL, f"step {step} failed: {text_of(error)}")
            if ended is not None and step in _ASKED_ONCE:
                ended = await self._unless_begun(life, ended)
            if self._sink is not None:
                self._tell(life, step, ended)
            if ended is not None:
                return ended
        return None

    def _steps_for(self, life: Life[DepsT]) -> _Steps[DepsT]:
        """The steps of a call; where nobody is told of them, without those that would do nothing."""
        tool = self.tools.find(life.call.name)
        if self._sink is not None or tool is None or life.decided is not None or life.earlier is not None:
            return self._steps
        known, steps = self._needed.get(tool.name, (None, ()))
        if known is not tool:
            idle = _idle_steps(tool.declares, guarded=bool(self._guardrails))
            steps = tuple(each for each in self._steps if each[0] not in idle)
            self._needed[tool.name] = tool, steps
        return steps

    def _find(self, life: Life[DepsT]) -> Ended | Coroutine[Any, Any, Ended]:
        life.tool = self.tools.find(life.call.name)
        if life.tool is not None:
            return None
        return self._find_anew(life) if self.tools.can_change and not life.unlisted else self._not_found(life)

    async def _find_anew(self, life: Life[DepsT]) -> Ended:
        """A workbench may have the tool by now."""
        life.unlisted = await self._prepare(anew=True)
        life.tool = self.tools.find(life.call.name)
        return None if life.tool is not None else self._not_found(life)

    def _not_found(self, life: Life[DepsT]) -> Ended:
        if life.unlisted:
            text = f"the tool {life.call.name!r} may be one of a workbench that cannot be used: {life.unlisted}"
            return life.failed(ErrorCode.TRANSIENT, cleaned(text))
        known = ", ".join((*self.tools.names, *self.tools.reserved)) or "none"
        return life.failed(ErrorCode.UNKNOWN_TOOL, cleaned(f"there is no tool {life.call.name!r}; there are: {known}"))

    def _guard_call(self, life: Life[DepsT]) -> Ended:
        verdict = judge(self._guardrails, Subject("tool_call", life.arguments, life.found.name))
        if isinstance(verdict, Refuse):
            return life.failed(ErrorCode.GUARDRAIL, cleaned(f"refused by {verdict.by}: {verdict.reason}"))
        if isinstance(verdict, Rewrite):
            life.given = verdict.value
            life.checked = life.found.checked(life.given)
            life.note = "rewritten", "by a guardrail"
        return None

    async def _limit_rate(self, life: Life[DepsT]) -> Ended:
        limit = life.found.declares.rate_limit
        if limit is None:
            return None
        window = self._windows.setdefault(life.found.name, Window(limit))
        wait = window.take(time.monotonic())
        if wait is None:
            text = f"tool {life.found.name!r} takes {limit.calls} calls in {limit.seconds:g} seconds: try later"
            return life.failed(ErrorCode.RATE_LIMITED, text)
        if wait:
            await life.stop.sleep(wait)
        return None

    async def _unless_begun(self, life: Life[DepsT], refused: Ended) -> Ended:
        """What a step refuses now it may have let pass before a crash; then the call goes on where it was."""
        if life.found.declares.strategy is Strategy.PURE:
            return refused
        earlier = await self._ledger.look(life.key)
        if earlier.result is not None:
            life.note = "repeated", "its result was noted by an earlier attempt"
            return earlier.result
        if earlier.attempts:
            life.note = "repeated", "it was let pass by an earlier attempt"
            return None
        return refused

    async def _intend(self, life: Life[DepsT]) -> Ended:
        strategy = life.found.declares.strategy
        if strategy is Strategy.PURE:
            return None
        earlier = await self._ledger.open(life.key)
        if earlier.result is not None:
            life.note = "repeated", "its result was noted by an earlier attempt"
            return earlier.result
        if not (earlier.attempts or life.unsure):
            return None
        life.attempts = max(1, earlier.attempts)
        ended = await self._attempts.judge(life, life.attempts)
        return ended if ended is None else await self._ledger.close(life.key, ended)

    async def _execute(self, life: Life[DepsT]) -> Ended:
        life.result = await self._attempts.run(life, self._tell_retry)
        return None

    async def _record(self, life: Life[DepsT]) -> Ended:
        assert life.result is not None
        if life.found.declares.strategy is not Strategy.PURE:
            life.result = await self._ledger.close(life.key, life.result)
        return None

    def _guard_result(self, life: Life[DepsT]) -> Ended:
        assert life.result is not None
        verdict = judge(self._guardrails, Subject("tool_result", life.result.value, life.found.name))
        if isinstance(verdict, Refuse):
            text = f"the tool ran, and its result is held back by {verdict.by}: {verdict.reason}"
            return life.failed(ErrorCode.GUARDRAIL, cleaned(text))
        if isinstance(verdict, Rewrite):
            life.result = life.result.model_copy(update={"value": as_json(verdict.value, "the rewritten result")})
            life.note = "rewritten", "by a guardrail"
        return None

    def _answered(self, life: Life[DepsT], ended: ToolResult | NeedsApproval) -> ToolResult | NeedsApproval:
        self._tell(life, Step.ANSWER, ended)
        count(life, ended)
        return ended

    def _tell(self, life: Life[DepsT], step: Step, ended: Ended) -> None:
        if self._sink is not None:
            self._sink(event_of(life, step, ended))
        life.note = None

    def _tell_retry(self, life: Life[DepsT], why: str) -> None:
        life.note = "retried", why
        self._tell(life, Step.EXECUTE, None)


def _idle_steps(declares: Declared, *, guarded: bool) -> set[Step]:
    """The steps that do nothing for a first call of a tool that declares this."""
    needed = {
        Step.GUARDRAIL: guarded,
        Step.GUARD_RESULT: guarded,
        Step.AUTHORISE: declares.authorise is not None,
        Step.RATE_LIMIT: declares.rate_limit is not None,
        Step.IDEMPOTENCY: False,
        Step.APPROVE: declares.requires_approval is not False,
        Step.INTENT: declares.strategy is not Strategy.PURE,
        Step.RECORD: declares.strategy is not Strategy.PURE,
    }
    return {step for step, wanted in needed.items() if not wanted}
