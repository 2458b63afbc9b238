"""Do what the model decided: run a group of calls, tell other agents and people, take back what was done.

Every call ends in a result or in a wait; nothing but a cancellation, or the loss of the turn, leaves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, cast

from autogen_core import AgentId, TopicId
from pydantic import BaseModel, JsonValue

from stagebell.agents.context import Deps, RunContext, read_business
from stagebell.agents.delegates import Delegates, child_agent, child_run_id, said_in, unheard
from stagebell.agents.events import UNCHANGED, CallsHandled, Compensate, RunCalls, Undone, Waits
from stagebell.agents.messages import Question, RunAccepted, StartRun, Task
from stagebell.agents.state import Parent, Pending, Run, Undo
from stagebell.errors import StagebellError, Undeliverable
from stagebell.messages.reasons import shorten
from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.runtime.engine.deadlines import deadline
from stagebell.runtime.engine.ports import Tells
from stagebell.tools.approval_messages import ApprovalRequest
from stagebell.tools.approvals import ask_for_approval
from stagebell.tools.containing import as_error, called
from stagebell.tools.executor import Executor
from stagebell.tools.lifecycle import NeedsApproval
from stagebell.tools.policy import ErrorPolicy, text_of
from stagebell.tools.values import as_json

Update: TypeAlias = Callable[[Any, ToolCall, ToolResult], Any]
"""What the business section becomes after a result: a pure function of what it was, the call and the result."""


_LARGEST: Final = 200_000  # characters of the results of one group


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person said of a call; see `tools.lifecycle.Decided`."""

    approved: bool
    arguments: Mapping[str, JsonValue] | None = None
    reason: str = ""

    @classmethod
    def read(cls, data: JsonValue) -> Decision | None:
        """Out of the data that the state keeps."""
        return None if data is None else cls(**cast("dict[str, Any]", data))


@dataclass(slots=True)
class Acting(Generic[Deps]):
    """How an agent acts; made once for each agent."""

    executor: Executor[Deps]
    delegates: Delegates
    policy: ErrorPolicy
    business: type[BaseModel] | None = None
    update: Update | None = None
    approval_timeout: float | None = None

    async def act(self, context: RunContext[Deps], run: Run, work: RunCalls, now: Callable[[], int]) -> CallsHandled:
        """Run a group of calls, at once what may overlap.

        Args:
            context: the run.
            run: the same, as its state has it.
            work: the calls.
            now: the time, in milliseconds since the epoch.
        """
        if run.deadline is None:
            outcomes = await self._outcomes(context, run, work.calls, now)
        else:
            with deadline((run.deadline - now()) / 1000):  # for what tools see of the time, and what they send
                outcomes = await self._outcomes(context, run, work.calls, now)
        if sum(map(_size, outcomes)) > _LARGEST:
            outcomes = _not_too_large(outcomes)
        fatal = self._fatal(outcomes)
        business: JsonValue = UNCHANGED
        if self.update is not None:
            business, failed = self._updated(context, work.calls, outcomes)
            fatal = fatal or failed
        return CallsHandled(tuple(outcomes), now(), self._undoable(work.calls, outcomes), fatal, business)

    async def compensate(self, context: RunContext[Deps], run: Run, work: Compensate, now: Callable[[], int]) -> Undone:
        """Take a call back."""
        undo = work.undo
        result = await self.executor.compensate(
            undo.call,
            undo.result,
            run_id=run.run_id,
            deps=context.deps,
            token=context.cancellation_token,
            unsure=undo.unsure,
        )
        error = result.text if result is not None and result.is_error else ""
        return Undone(undo.call.id, now(), error)

    async def _outcomes(
        self, context: RunContext[Deps], run: Run, calls: Sequence[Pending], now: Callable[[], int]
    ) -> list[ToolResult | Waits]:
        share = sum([each.kind in ("run", "handoff") for each in calls])
        if len(calls) == 1:
            return [await self._outcome(context, run, calls[0], share, now)]
        return await _together(calls, [self._outcome(context, run, each, share, now) for each in calls])

    def _outcome(
        self, context: RunContext[Deps], run: Run, pending: Pending, share: int, now: Callable[[], int]
    ) -> Coroutine[Any, Any, ToolResult | Waits]:
        if pending.refused:
            return _refused(pending)
        match pending.kind:
            case "tool":
                return self._run_tool(context, run, pending, now)
            case "question":
                return self._ask_person(context, run, pending.call)
            case _:
                return self._start_run(context, run, pending, share)

    async def _run_tool(
        self, context: RunContext[Deps], run: Run, pending: Pending, now: Callable[[], int]
    ) -> ToolResult | Waits:
        outcome = await self.executor.run(
            pending.call,
            run_id=run.run_id,
            deps=context.deps,
            token=context.cancellation_token,
            decided=Decision.read(pending.decided),
            unsure=pending.unsure,
        )
        if isinstance(outcome, NeedsApproval):
            return await self._ask_for_approval(context, run, outcome, now)
        return outcome

    async def _ask_for_approval(
        self, context: RunContext[Deps], run: Run, needed: NeedsApproval, now: Callable[[], int]
    ) -> ToolResult | Waits:
        expires_at = None if self.approval_timeout is None else now() + round(self.approval_timeout * 1000)
        request = ApprovalRequest(
            id=needed.key, run_id=run.run_id, call=needed.call, agent=str(context.agent), expires_at=expires_at
        )
        try:
            await ask_for_approval(context.runtime, request)
        except StagebellError as error:
            return ToolResult.error(needed.call, ErrorCode.FATAL, f"nobody can be asked for an approval: {error}")
        asked: JsonValue = {"id": request.id, "tool": needed.call.name, "arguments": dict(needed.arguments)}
        return Waits(needed.call.id, "approval", asked)

    async def _ask_person(self, context: RunContext[Deps], run: Run, call: ToolCall) -> ToolResult | Waits:
        if why := unheard(call):
            return ToolResult.error(call, ErrorCode.INVALID_ARGUMENTS, why)
        question = Question(run_id=run.run_id, call_id=call.id, question=said_in(call))
        topic = TopicId(f"{context.agent.type}.questions", run.run_id)
        await context.runtime.publish_message(question, topic, sender=context.agent)
        return Waits(call.id, "question", question.question)

    async def _start_run(self, context: RunContext[Deps], run: Run, pending: Pending, share: int) -> ToolResult | Waits:
        """Tell another agent to begin; it tells us when it has ended."""
        call, delegate = pending.call, self.delegates.find(pending.call.name)
        if delegate is None:
            return ToolResult.error(call, ErrorCode.UNKNOWN_TOOL, f"there is no agent behind {call.name!r} any more")
        if why := unheard(call):
            return ToolResult.error(call, ErrorCode.INVALID_ARGUMENTS, why)
        limits = run.limits.share(run.steps, run.usage, share)
        if limits is None:
            return ToolResult.error(call, ErrorCode.DENIED, "what is left of the budget is too little for another run")
        path = (*run.job.path, str(context.agent))
        agent = child_agent(delegate, context.agent, path, run.run_id, call.id)
        run_id = child_run_id(agent, run.run_id, call.id)
        job = run.job
        start = StartRun(
            run_id=run_id,
            task=Task(content=said_in(call), source=context.agent.type, deps_key=job.deps_key, limits=limits),
            deadline=run.deadline,
            path=path,
            parent=Parent(str(context.agent), run.run_id, call.id),
            tokens_to=job.tokens_to if pending.kind == "handoff" else "",
        )
        try:
            await tell(context.runtime, start, agent, expects=RunAccepted)
        except (Undeliverable, StagebellError) as error:
            return ToolResult.error(call, ErrorCode.TRANSIENT, str(error))
        return Waits(call.id, "run", {"agent": str(agent), "run_id": run_id})

    def _fatal(self, outcomes: Sequence[ToolResult | Waits]) -> str:
        for outcome in outcomes:
            if isinstance(outcome, ToolResult) and self.policy.ends_run(outcome.code):
                return f"{outcome.tool_name} ({outcome.code}): {outcome.text}"
        return ""

    def _undoable(self, calls: Sequence[Pending], outcomes: Sequence[ToolResult | Waits]) -> tuple[Undo, ...]:
        found: list[Undo] = []
        for pending, outcome in zip(calls, outcomes, strict=True):
            if pending.kind != "tool" or isinstance(outcome, Waits) or outcome.is_error:
                continue
            tool = self.executor.tools.find(pending.call.name)
            if tool is not None and tool.declares.compensate is not None:
                found.append(Undo(_as_made(pending), outcome))
        return tuple(found)

    def _updated(
        self, context: RunContext[Deps], calls: Sequence[Pending], outcomes: Sequence[ToolResult | Waits]
    ) -> tuple[JsonValue, str]:
        """The business section after these results; or why it cannot be had."""
        assert self.update is not None
        business, changed = context.business, False
        try:
            for pending, outcome in zip(calls, outcomes, strict=True):
                if isinstance(outcome, ToolResult):
                    business, changed = called(self.update, business, pending.call, outcome), True
            if not changed:
                return UNCHANGED, ""
            data = as_json(business, "business")
            called(read_business, self.business, data)
        except Exception as error:
            return UNCHANGED, f"the business section could not be updated: {shorten(text_of(error))}"
        return data, ""


async def _refused(pending: Pending) -> ToolResult | Waits:
    return ToolResult.error(pending.call, ErrorCode.DENIED, pending.refused)


async def _together(
    calls: Sequence[Pending], works: Sequence[Coroutine[Any, Any, ToolResult | Waits]]
) -> list[ToolResult | Waits]:
    """Make calls at once; one whose task was ended by what it awaited has an error, and the others what they gave.

    Raises:
        BaseException: the turn was cancelled, or is not ours any more.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    return [_outcome_of(task, pending) for task, pending in zip(tasks, calls, strict=True)]


def _outcome_of(task: asyncio.Task[ToolResult | Waits], pending: Pending) -> ToolResult | Waits:
    if not task.cancelled() and isinstance(error := task.exception(), GeneratorExit):
        return ToolResult.error(pending.call, ErrorCode.FATAL, text_of(as_error(error)))
    return task.result()


def _not_too_large(outcomes: Sequence[ToolResult | Waits]) -> list[ToolResult | Waits]:
    """The outcomes of a group; a result for which the conversation has no room gives way to an error that says so."""
    room, kept = _LARGEST, list[ToolResult | Waits]()
    for outcome in outcomes:
        size = _size(outcome)
        if isinstance(outcome, ToolResult) and size > room:
            text = f"the tool ran, and its result has {size:,} characters, which is too much: let it return less"
            call = ToolCall(id=outcome.call_id, name=outcome.tool_name)
            outcome = ToolResult.error(call, ErrorCode.BUSINESS, text, outcome.attempts)
        else:
            room -= size
        kept.append(outcome)
    return kept


def _size(outcome: ToolResult | Waits) -> int:
    """How many characters the model will read; of what is short in any case, 0."""
    if isinstance(outcome, Waits):
        return 0
    if isinstance(outcome.value, str):
        return len(outcome.value)
    return len(outcome.text) if isinstance(outcome.value, dict | list) else 0


async def tell(runtime: Any, message: BaseModel, to: AgentId, *, expects: type | None = None) -> None:
    """Send a message to one agent, for which nobody waits; inside a turn it leaves with the commit.

    With `expects`, the agent whose turn it is hears by a `SetAside` when it is not answered with that.

    Raises:
        TypeError: the runtime cannot do that.
        Undeliverable: the type of the agent is not known.
    """
    if not hasattr(runtime, "tell"):
        raise TypeError(f"{type(runtime).__name__} has no tell(): run these agents on a runtime of stagebell")
    await cast(Tells, runtime).tell(message, to, expects=expects)


def _as_made(pending: Pending) -> ToolCall:
    """The call, with the arguments that it was made with."""
    decided = Decision.read(pending.decided)
    if decided is None or decided.arguments is None:
        return pending.call
    return pending.call.model_copy(update={"arguments": json.dumps(dict(decided.arguments))})
