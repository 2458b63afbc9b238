"""`ModelAgent`: an agent that decides by a model and acts by tools, typed in what it works with and what it gives.

await ModelAgent.register(runtime, "assistant", lambda: ModelAgent(client, tools=[add], output_type=Sum))
result = await runtime.send_message(Task(content="20 + 22?"), AgentId("assistant", "conversation-1"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, cast

from autogen_core import MessageContext
from autogen_core.models import ChatCompletionClient
from pydantic import BaseModel, JsonValue, ValidationError

from stagebell.agents.acting import Acting, Update
from stagebell.agents.asking import Asking, Cost, Hook, Instructions, ToolsForStep
from stagebell.agents.context import Deps, Output, RunContext, checked_business, current_run, read_business
from stagebell.agents.delegates import Delegate, Delegates
from stagebell.agents.dependencies import Dependencies, Factory
from stagebell.agents.events import Due, Event, RequestModel, RunCalls
from stagebell.agents.history import Processor
from stagebell.agents.limits import Limits
from stagebell.agents.loop_actor import impossible
from stagebell.agents.messages import Task
from stagebell.agents.outputs import Outputs, Rejected, Validator
from stagebell.agents.run_agent import RunAgent
from stagebell.agents.state import Run
from stagebell.agents.stores.port import RunStore
from stagebell.agents.streaming import Stream
from stagebell.errors import WrongType
from stagebell.messages.conversation import Decided
from stagebell.messages.reasons import explain, shorten
from stagebell.messages.tool_calls import AnyDecision, Ask, ErrorCode, HandOff, UseTools
from stagebell.runtime.engine.checked import named_settings
from stagebell.runtime.engine.deadlines import now_ms
from stagebell.tools.executor import Executor
from stagebell.tools.guardrails import Guardrail, Refuse, Rewrite, Subject, judge
from stagebell.tools.ledger import TurnLedger
from stagebell.tools.lifecycle import ToolEvent
from stagebell.tools.policy import Consequence, ErrorPolicy, text_of
from stagebell.tools.toolset import AnyTool, Toolset

ToolLike: TypeAlias = AnyTool[Deps] | Delegate


class ModelAgent(RunAgent, Generic[Deps, Output]):
    """An agent around any `ChatCompletionClient`. Tasks of one key are one conversation, and run one after the other.

    Args:
        client: the model.
        instructions: what it is told to be and to do: a text, a function of the run's context, or several of these.
        tools: functions, tools, workbenches, and other agents (`agent_tool`, `handoff`).
        ask_person: the model may put questions to a person.
        deps: makes what tools work with, from the task's `deps_key`, on the worker that runs them.
        output_type: what a run gives: anything pydantic can describe; by default the model's text.
        output_validators: functions that look at an output, and raise `OutputRejected` when it is not good enough.
        guardrails: functions that judge tasks, outputs, calls and results.
        business: a model of the conversation's business section, with a default for each field.
        update: what that section becomes after a result: `update(business, call, result)`, a pure function.
        limits: bounds of each run.
        approval_timeout: seconds that a person has to decide about a call; None for any.
        on_tool_event: is told of each step of each call of a tool; what it raises is logged.
        on_error: for codes of errors, whether the model is told ("feed_back") or the run ends ("end_run").
        history: processors that shorten what the model is sent.
        hooks: stand around each request to the model.
        tools_for_step: the names of the tools that may be used in a step; None for all.
        cost: what a request cost, for `limits.max_cost`.
        stream: answers are published piece by piece while they are written, see `tokens_topic`.
        store: where the conversation is kept, on `LocalRuntime` (see `stagebell.agents.stores`); None: in memory there,
            and in the server on `RedisRuntime`.
        request_timeout: seconds that a request to the model may take; None for any.
        description: what the agent is, for AutoGen's metadata.

    Raises:
        ValueError: nothing bounds a run; a time is not above 0; or business facts are updated without a model of them,
            or by one that is no JSON.
        ToolRefused: a tool cannot be used, or two have one name.
        InvalidSetting: there is no such setting.
        WrongType: the client is none.
    """

    @named_settings("ModelAgent")
    def __init__(
        self,
        client: ChatCompletionClient,
        *,
        instructions: Instructions[Deps] | Sequence[Instructions[Deps]] = (),
        tools: Sequence[ToolLike[Deps]] = (),
        ask_person: bool = False,
        deps: Factory[Deps] | None = None,
        output_type: type[Output] | None = None,
        output_validators: Sequence[Validator[Output, Deps]] = (),
        guardrails: Sequence[Guardrail] = (),
        business: type[BaseModel] | None = None,
        update: Update | None = None,
        limits: Limits | None = None,
        approval_timeout: float | None = None,
        on_tool_event: Callable[[ToolEvent], None] | None = None,
        on_error: Mapping[ErrorCode, Consequence] | None = None,
        history: Sequence[Processor] = (),
        hooks: Sequence[Hook] = (),
        tools_for_step: ToolsForStep[Deps] | None = None,
        cost: Cost | None = None,
        stream: bool = False,
        store: RunStore | None = None,
        request_timeout: float | None = 120.0,
        description: str = "An agent that decides by a model.",
    ) -> None:
        if not hasattr(client, "create"):
            raise WrongType(
                f"the client of a ModelAgent must be a ChatCompletionClient, not {client!r:.80}: make one, "
                "such as OpenAIChatCompletionClient(model=…), or for tests a stagebell.testing.ScriptedModel"
            )
        approval_timeout = _checked("approval_timeout", approval_timeout)
        super().__init__(description, limits or Limits(), store)
        executor = _executor(tools, guardrails, on_tool_event)
        delegates = [each for each in tools if isinstance(each, Delegate)]
        others = Delegates(delegates, ask_person=ask_person, taken=executor.tools.names)
        executor.tools.reserved = others.names
        several = [instructions] if isinstance(instructions, str) or callable(instructions) else instructions
        outputs = Outputs(cast("type[Output]", output_type or str), output_validators, guardrails)
        timeout, streamed = _checked("request_timeout", request_timeout), Stream() if stream else None
        asked = client, several, outputs, executor, others, history, hooks, tools_for_step, cost, timeout, streamed
        self._asking = Asking(*asked)
        self._acting = Acting(executor, others, ErrorPolicy(on_error), business, update, approval_timeout)
        self._deps = Dependencies(deps)
        self._guardrails = [each for each in guardrails if "input" in each.places]
        self._business = checked_business(business)
        self._used: tuple[int, set[str]] = 0, set()

    @property
    def toolset(self) -> Toolset[Deps]:
        """The tools of the agent; other agents and people that it can call are not among them."""
        return self._acting.executor.tools

    async def perform(self, work: Due, ctx: MessageContext) -> Event:
        run = self.state.control.run
        assert run is not None
        try:
            context = await self._context(run, ctx)
        except Exception as error:
            text = f"the dependencies could not be made: {shorten(text_of(error))}"
            return impossible(work, text)
        token = current_run.set(context)
        try:
            if isinstance(work, RequestModel):
                return await self._asking.ask(context, self._used_ids(run), now_ms)
            if isinstance(work, RunCalls):
                return await self._acting.act(context, run, work, now_ms)
            return await self._acting.compensate(context, run, work, now_ms)
        finally:
            current_run.reset(token)

    def check_task(self, task: Task) -> tuple[str, str]:
        if task.business is not None and self._business is not None:
            known = self.state.business if isinstance(self.state.business, dict) else {}
            try:
                read_business(self._business, {**known, **task.business})
            except ValidationError as error:
                raise ValueError(f"business facts of the task: {explain(error)}") from error
        verdict = judge(self._guardrails, Subject("input", task.content))
        if isinstance(verdict, Refuse):
            return task.content, f"refused by {verdict.by}: {verdict.reason}"
        return str(verdict.value) if isinstance(verdict, Rewrite) else task.content, ""

    async def check_output(self, output: JsonValue, ctx: MessageContext) -> str:
        run = self.state.control.run
        assert run is not None
        checked = await self._asking.outputs.check_value(output, await self._context(run, ctx))
        return checked.error if isinstance(checked, Rejected) else ""

    def ends_run(self, code: ErrorCode) -> bool:
        return self._acting.policy.ends_run(code)

    def forget(self) -> None:
        self._deps.forget()
        self._used = 0, set()

    async def close(self) -> None:
        """Stop the workbenches of the agent."""
        await self._asking.executor.tools.close()

    async def _context(self, run: Run, ctx: MessageContext) -> RunContext[Deps]:
        deps = await self._deps.of(self.id.type, run.run_id, run.job.deps_key)
        return RunContext(self.id, self.runtime, deps, ctx.cancellation_token, self.state, self._business)

    def _used_ids(self, run: Run) -> set[str]:
        """The ids of the calls that the run has had."""
        upto, used = self._used
        entries = self.state.conversation
        for entry in entries[upto:]:
            if isinstance(entry, Decided) and entry.run_id == run.run_id:
                used.update(_ids(entry.decision))
        self._used = len(entries), used
        return used


def _checked(name: str, seconds: float | None) -> float | None:
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"{name} is {seconds}: give it more than 0 seconds, or None for any time")
    return seconds


def _executor(
    tools: Sequence[ToolLike[Deps]], guardrails: Sequence[Guardrail], sink: Callable[[ToolEvent], None] | None
) -> Executor[Deps]:
    toolset = Toolset[Deps](each for each in tools if not isinstance(each, Delegate))
    return Executor(toolset, guardrails=guardrails, ledger=TurnLedger(), sink=sink)


def _ids(decision: AnyDecision) -> list[str]:
    if isinstance(decision, UseTools):
        return [each.id for each in decision.calls]
    call = decision.call if isinstance(decision, HandOff | Ask) else None
    return [] if call is None else [call.id]
